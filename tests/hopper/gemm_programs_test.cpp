// Every GEMM program of the Hopper executor against cpu::run, on a Hopper GPU: gemm_check.h has the tolerances.
#include "tests/hopper/gemm_check.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr const char* kCrossEntropies[] = {"LinearCrossEntropy", "LinearRstdCrossEntropy"};

}  // namespace

TEST_CASE("products of whole numbers are exact", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : {"Linear", "LinearDgrad", "LinearF32", "WeightGradient"})
        for (const bool accumulate : {false, true})
            for (const Shape& shape :
                 {Shape{program, 256, 256, 64}, Shape{program, 128, 256, 16}, Shape{program, 512, 512, 512},
                  Shape{program, 8, 136, 72}, Shape{program, 200, 520, 24}, Shape{program, 1000, 264, 1000}}) {
                // bf16 results stay exact only below 256; K of 24 products of at most 4.
                const bool f32 = std::string(program) == "LinearF32" || std::string(program) == "WeightGradient";
                if (!f32 && shape.k > 24) continue;
                check(shape, {.integers = true, .accumulate = accumulate, .optionals = accumulate});
            }
}

TEST_CASE("programs agree with the CPU", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kPrograms) {
        const std::int64_t columns = has_heads(program) ? 384 : 528;
        check({program, 256, 512, 192}, {});
        check({program, 304, columns, 200}, {.accumulate = true, .optionals = true});
        check({program, 8, has_heads(program) ? 128 : 144, 72}, {.gap = 8});
        check({program, std::string(program) == "WeightGradient" ? 1032 : 1030, 768, 520},
              {.head_dim = 128, .vocab = 757});
    }
}

TEST_CASE("one row, as sampling has it", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kPrograms)
        if (std::string(program) != "WeightGradient") check({program, 1, 256, 136}, {});
}

// 50257 tokens in a vocabulary padded to 50304, and all of 128256: exponentials beyond the vocabulary are 0, and no sum
// has them.
TEST_CASE("cross-entropy of real vocabularies", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kCrossEntropies) {
        check({program, 264, 50304, 72}, {.vocab = 50257});
        check({program, 8, 50304, 72}, {.vocab = 50257, .evaluation = true});
        check({program, 72, 128256, 64}, {});
        check({program, 264, 256, 72}, {.vocab = 128});  // a tile of padding alone
    }
}

// Distances of hundreds: exponentials at the limit, others at 0, and sums that are finite.
TEST_CASE("cross-entropy of logits that are far from their target's", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kCrossEntropies)
        for (const bool evaluation : {false, true})
            check({program, 300, 1040, 72}, {.vocab = 1030, .evaluation = evaluation, .distance = 150});
}

TEST_CASE("sums of exponentials that are not stored have the same bits", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kCrossEntropies)
        for (const std::int64_t vocab : {1040, 1030}) {
            std::vector<std::byte> sums[2];
            for (const bool evaluation : {false, true}) {
                const GemmCase made =
                    bench::make_case({program, 300, 1040, 72}, {.vocab = vocab, .evaluation = evaluation});
                const bench::DeviceBuffers device(made.buffers, 5);
                hopper::prepare(made.op, device.memory())(nullptr);
                CUDA_CHECK(cudaDeviceSynchronize());
                sums[evaluation] = download(made.buffers, device.memory()).back();
            }
            CHECK(sums[0] == sums[1]);
        }
}

// A NaN among the logits is one in its exponential and its row's sums, not the limit.
TEST_CASE("cross-entropy passes NaN on", "[gpu]") {
    if (!has_hopper()) return;
    const GemmCase made = bench::make_case({"LinearRstdCrossEntropy", 200, 640, 72});
    const bench::DeviceBuffers device(made.buffers, 5);
    const Bf16 nan(NAN);
    const View row = made.a.row_slice(77, 1);
    CUDA_CHECK(cudaMemcpy(device.memory().address(row), &nan, sizeof nan, cudaMemcpyHostToDevice));
    hopper::prepare(made.op, device.memory())(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    const Bytes got = download(made.buffers, device.memory());
    const auto& op = std::get<LinearCrossEntropy>(made.op);
    for (std::int64_t column = 0; column < 640; ++column) CHECK(std::isnan(element(got, op.exponentials, 77, column)));
    for (std::int64_t tile = 0; tile < op.sums.rows; ++tile)
        for (std::int64_t i = 0; i < 400; ++i) CHECK(std::isnan(element(got, op.sums, tile, i)) == (i / 2 == 77));
}

// Rows of the head's gradient are over their scale, anything from 2^-58 to 2^110 of it; a scale of 0 keeps what stands
// in an ignored row out.
TEST_CASE("scales of the rows of a gradient", "[gpu]") {
    if (!has_hopper()) return;
    for (const auto& [size, scale] : {std::pair{0x1p100, 0x1p-100}, {0x1p-58, 0x1p58}, {0x1p100, 0.0}}) {
        const CaseOptions options{.accumulate = true, .optionals = true};
        GemmCase made = bench::make_case({"LinearRmsBackward", 328, 528, 1000}, options);
        for (bench::Buffer& buffer : made.buffers) {
            if (std::string(buffer.name) == "a") buffer.scale = size;
            if (std::string(buffer.name) == "scale") buffer.scale = scale;
        }
        check_case(made, options);
    }
}

TEST_CASE("many tiles a block and rounds of every ring", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kPrograms) check({program, 6400, 2816, 320}, {.accumulate = true});
}

TEST_CASE("two runs give the same bits", "[gpu]") {
    if (!has_hopper()) return;
    std::vector<Shape> shapes{{"WeightGradient", 768, 768, 8192}};  // in parts of K
    for (const char* program : kPrograms) shapes.push_back({program, 1536, 1536, 512});
    for (const Shape& shape : shapes) {
        const GemmCase made = bench::make_case(shape);
        Bytes first;
        for (int run = 0; run < 2; ++run) {
            const bench::DeviceBuffers device(made.buffers, 5);
            hopper::prepare(made.op, device.memory())(nullptr);
            CUDA_CHECK(cudaDeviceSynchronize());
            Bytes bytes = download(made.buffers, device.memory());
            if (run == 0) {
                first = std::move(bytes);
            } else {
                INFO(shape.program << " M " << shape.m << " N " << shape.n << " K " << shape.k);
                CHECK(bytes == first);
            }
        }
    }
}
