// Embed and EmbedBackward of the Hopper executor against cpu::run: equal bits, except for rstd.
//
// x is a copy, or rounded once. A column of the embedding's gradient is one chain of additions, in the same order on
// both sides. rstd sums d squares in fp32, in different orders: either side is off by d 2^-24 of the sum, half of it
// after the root. The quotient, the sum with eps, the root and the reciprocal add 4 2^-24.
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "kernels/cpu/run.h"
#include "tests/hopper/gpu_copy.h"

using namespace coda;
using namespace coda::test;

namespace {

using Tokens = std::vector<int>;

/// Token r with a probability proportional to 1 / (r + 1), as in text; ids are scattered over the vocabulary.
Tokens zipf(std::int64_t rows, int vocab) {
    std::vector<double> weights(static_cast<std::size_t>(vocab));
    for (std::size_t r = 0; r < weights.size(); ++r) weights[r] = 1.0 / static_cast<double>(r + 1);
    std::vector<int> ids(weights.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::mt19937 generator(5);
    std::shuffle(ids.begin(), ids.end(), generator);
    std::discrete_distribution<std::size_t> rank(weights.begin(), weights.end());
    Tokens tokens(static_cast<std::size_t>(rows));
    for (int& token : tokens) token = ids[rank(generator)];
    return tokens;
}

/// `count` rows of one token among rows of others: groups just below and above the size that one warp adds.
Tokens group_of(int count, std::int64_t rows, int vocab) {
    Tokens tokens(static_cast<std::size_t>(rows), 0);
    std::iota(tokens.begin(), tokens.end(), 1);
    std::fill_n(tokens.begin(), count, vocab - 1);
    std::mt19937 generator(7);
    std::shuffle(tokens.begin(), tokens.end(), generator);
    return tokens;
}

/// `positions`: rows of the table of positions; 0: none.
Embed embed(Buffers& buffers, DType table, const Tokens& tokens, std::int64_t vocab, std::int64_t width,
            std::int64_t gap, std::int64_t positions = 0) {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    Embed op;
    op.tokens = buffers.indices(tokens);
    op.table = buffers.random(table, vocab, width, -1, 1, width + gap);
    if (positions > 0) {
        Tokens places;
        for (std::int64_t row = 0; row < rows; ++row) places.push_back(static_cast<int>(row % positions));
        op.positions = buffers.indices(places);
        op.position_table = buffers.random(DType::bf16, positions, width, -1, 1, width + gap);
    }
    op.x = buffers.matrix(DType::bf16, rows, width, width + gap);
    op.rstd = buffers.vector(DType::f32, rows);
    op.eps = 1e-5;
    return op;
}

EmbedBackward embed_backward(Buffers& buffers, const Tokens& tokens, std::int64_t vocab, std::int64_t width,
                             std::int64_t gap = 0) {
    EmbedBackward op;
    op.tokens = buffers.indices(tokens);
    op.dx = buffers.random(DType::bf16, static_cast<std::int64_t>(tokens.size()), width, -1, 1, width + gap);
    op.grad = buffers.random(DType::f32, vocab, width, -1, 1, width + gap);
    op.scratch = buffers.vector(DType::u8, op.scratch_bytes());
    return op;
}

/// The gradient has the same bits on the GPU, in a second run and on the CPU, untouched rows and gaps included.
void check_backward(const Tokens& tokens, std::int64_t vocab, std::int64_t width, std::int64_t gap = 0) {
    Buffers expected, got, again;
    const EmbedBackward op = embed_backward(expected, tokens, vocab, width, gap);
    cpu::run(op, expected.memory());
    run_on_gpu(embed_backward(got, tokens, vocab, width, gap), got);
    run_on_gpu(embed_backward(again, tokens, vocab, width, gap), again);
    INFO("EmbedBackward of " << tokens.size() << " rows, " << vocab << " tokens, width " << width);
    CHECK((got.bits(op.grad) == expected.bits(op.grad)));
    CHECK((got.bits(op.grad) == again.bits(op.grad)));
    CHECK((got.bits(op.dx) == expected.bits(op.dx)));
    CHECK((got.bits(op.tokens) == expected.bits(op.tokens)));
}

}  // namespace

TEST_CASE("Embed on the GPU", "[gpu]") {
    if (!has_hopper()) return;
    struct Shape {
        std::int64_t rows, vocab, width, gap;
    };
    struct Kind {
        DType table;
        int positions;
        bool centred = false;
    };
    for (const auto& [table, positions, centred] :
         {Kind{DType::bf16, 0}, Kind{DType::f32, 0}, Kind{DType::bf16, 33}, Kind{DType::f32, 33},
          Kind{DType::bf16, 0, true}, Kind{DType::f32, 33, true}})
        for (const auto& [rows, vocab, width, gap] :
             {Shape{1, 1, 8, 0}, Shape{37, 11, 72, 8}, Shape{300, 500, 2048, 0}, Shape{65, 90, 4104, 16}}) {
            const Tokens tokens = zipf(rows, static_cast<int>(vocab));
            Buffers expected, got;
            Embed op = embed(expected, table, tokens, vocab, width, gap, positions);
            Embed on_gpu = embed(got, table, tokens, vocab, width, gap, positions);
            op.centred = on_gpu.centred = centred;
            cpu::run(op, expected.memory());
            run_on_gpu(on_gpu, got);
            INFO("Embed of " << rows << " rows of " << width << " from " << name_of(table) << ", " << positions
                             << " positions" << (centred ? ", centred" : ""));
            for (const View& view : {View(op.tokens), View(op.table)}) CHECK((got.bits(view) == expected.bits(view)));
            // The two means are sums of other orders, of values below 2: x lies a step of bf16 apart at most.
            const double step = centred ? 0x1p-7 : 0, mean_error = centred ? static_cast<double>(width) * 0x1p-23 : 0;
            for (std::int64_t row = 0; row < rows; ++row)
                for (std::int64_t j = 0; j < width; ++j)
                    REQUIRE(std::abs(got.get(op.x, row, j) - expected.get(op.x, row, j)) <=
                            step * std::abs(expected.get(op.x, row, j)) + mean_error);
            // Elements of x that differ move the mean square by less than 2^-12 of it.
            const double tolerance = (static_cast<double>(width) + 4) * 0x1p-24 + (centred ? 0x1p-12 : 0);
            for (std::int64_t row = 0; row < rows; ++row)
                REQUIRE(std::abs(got.get(op.rstd, 0, row) / expected.get(op.rstd, 0, row) - 1) <= tolerance);
        }
}

TEST_CASE("EmbedBackward on the GPU adds rows of a token in order", "[gpu]") {
    if (!has_hopper()) return;
    check_backward({0}, 1, 8);
    check_backward({5, 2, 5, 5}, 6, 72, 8);
    for (const int rows : {31, 256, 1000}) {
        Tokens different(static_cast<std::size_t>(rows));
        std::iota(different.rbegin(), different.rend(), 3);
        check_backward(different, rows + 3, 40);                               // all different, descending
        check_backward(Tokens(static_cast<std::size_t>(rows), 3), 4, 136, 8);  // all equal
    }
    for (const int count : {32, 33, 63, 64, 65, 66, 128, 129, 400}) check_backward(group_of(count, 500, 700), 700, 200);
    check_backward(zipf(3001, 500), 500, 264);      // one digit
    check_backward(zipf(20011, 32000), 32000, 72);  // two digits, several batches per warp
    check_backward(zipf(9000, 300000), 300000, 8);  // three digits
}

TEST_CASE("EmbedBackward on the GPU takes a million rows", "[gpu]") {
    if (!has_hopper()) return;
    check_backward(zipf(1 << 20, 128256), 128256, 8);
}

TEST_CASE("EmbedBackward on the GPU continues a token's sum in the next million rows", "[gpu]") {
    if (!has_hopper()) return;
    check_backward(zipf((1 << 20) + 1, 500), 500, 72, 8);
    check_backward(zipf((2 << 20) + 5003, 128256), 128256, 8);
}

TEST_CASE("EmbedBackward in a graph adds at every launch", "[gpu]") {
    if (!has_hopper()) return;
    const Tokens tokens = zipf(2000, 3000);
    Buffers expected, got;
    const EmbedBackward op = embed_backward(expected, tokens, 3000, 128);
    embed_backward(got, tokens, 3000, 128);
    GpuCopy copy(got, operands_of(op));
    const hopper::Launch launch = hopper::prepare(op, copy.memory());
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CUDA_CHECK(cudaStreamCreate(&stream));
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    launch(stream);
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; ++i) {
        CUDA_CHECK(cudaGraphLaunch(executable, stream));
        cpu::run(op, expected.memory());
    }
    copy.download();
    CHECK((got.bits(op.grad) == expected.bits(op.grad)));
    CUDA_CHECK(cudaGraphExecDestroy(executable));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaStreamDestroy(stream));
}

TEST_CASE("the embedding on the GPU names what it cannot run", "[gpu]") {
    if (!has_hopper()) return;
    Buffers buffers;
    EmbedBackward backward = embed_backward(buffers, {1, 2}, 4, 64);
    backward.scratch.cols -= 1;
    CHECK_THAT(refusal(backward, buffers), Catch::Contains("operand scratch has 767 bytes, needs 768"));
    CHECK_THAT(refusal(embed_backward(buffers, {1, 2}, 4, 12), buffers), Catch::Contains("whole vectors of 16 bytes"));
    CHECK_THAT(refusal(embed(buffers, DType::bf16, {1, 2}, 4, 20, 0), buffers),
               Catch::Contains("whole vectors of 16 bytes"));
    CHECK_THAT(refusal(embed(buffers, DType::f32, {1, 2}, 4, 64, 4), buffers),
               Catch::Contains("rows of table, 68 elements apart, are not whole runs of eight"));
}
