// The small kernels that may start while their predecessor runs, behind a kernel that takes long.
//
// A chain in one stream, with no pause in between:
//   slow    made = source without its columns' means. Four blocks, each of 64 bytes of columns: other SMs are free
//   ops     the kernels under test. What they read lies in the last rows of made, also where they write it too. What
//           they only write lies in the first rows of source
//   reader  after = source without its columns' means. It reads the ops' results first
//
// The slow kernel lets the next one start at once, and takes more than 60 us: each of its two passes moves 4 MiB into
// one SM, which takes 64 bytes per cycle. It stores only in its second pass, and the last rows last. Until then made is
// poison, which is NaN. So a kernel without its wait is early by tens of microseconds, and gives NaN. So does one that
// waits only after it has loaded one of its operands. One that stores a result before it waits changes what the slow
// kernel reads in its second pass.
//
// Every bf16 of source and made is a number, so an fp32 operand may lie in them: of the two bf16 that it consists of,
// the second has its sign and exponent.
#include <string>
#include <vector>

#include "kernels/hopper/run.h"
#include "tests/hopper/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr BufferId kSource = 0, kMade = 1, kAfter = 2;
constexpr std::int64_t kRows = 65536, kRowBytes = 4 * 64, kAlignment = 256;
constexpr int kRuns = 10;

/// All of a buffer.
View whole(BufferId buffer, DType dtype) {
    const std::int64_t columns = kRowBytes / size_of(dtype);
    return {buffer, dtype, 0, kRows, columns, columns, 0};
}

/// Places for a chain's operands.
class Places {
  public:
    /// Of what an op reads: made's last rows, none of its first quarter.
    View input(DType dtype, std::int64_t rows, std::int64_t columns) {
        first_input_ -= round_up(rows * columns * size_of(dtype), kAlignment);
        REQUIRE(first_input_ >= kRows * kRowBytes / 4);
        return {kMade, dtype, first_input_, rows, columns, columns, 0};
    }
    /// Of what an op only writes: source's first rows.
    View result(DType dtype, std::int64_t rows, std::int64_t columns) {
        const View view{kSource, dtype, end_of_results_, rows, columns, columns, 0};
        end_of_results_ += round_up(view.bytes(), kAlignment);
        REQUIRE(end_of_results_ <= kRows * kRowBytes);
        return view;
    }

  private:
    std::int64_t first_input_ = kRows * kRowBytes, end_of_results_ = 0;
};

using Chain = std::vector<Op>;

/// Rows of few tiles, as a GEMM leaves them for a norm.
Chain finish_rstd(Places& places) {
    constexpr std::int64_t kTokens = 8192;
    return {FinishRstd{.square = places.input(DType::f32, 16, kTokens),
                       .rstd = places.result(DType::f32, 1, kTokens),
                       .width = 2048,
                       .eps = 1}};  // above what the sums, of either sign here, are divided by the width
}

Chain finish_row_sum(Places& places) {
    constexpr std::int64_t kTokens = 8192;
    return {
        FinishRowSum{.partials = places.input(DType::f32, 48, kTokens), .sum = places.result(DType::f32, 1, kTokens)}};
}

GradientSum column_sum(Places& places, std::int64_t tiles, std::int64_t width) {
    return {.partials = places.input(DType::f32, tiles, width),
            .gamma = places.input(DType::f32, 1, width),
            .grad = {places.input(DType::f32, 1, width), Beta::accumulate}};
}
FinishColumnSums finish_sum(const GradientSum& sum) {
    FinishColumnSums op;
    op.add(sum);
    return op;
}
Chain finish_column_sum(Places& places) { return {finish_sum(column_sum(places, 512, 2048))}; }
/// Few columns and many tiles, which the blocks of a cluster share.
Chain finish_column_sum_in_cluster(Places& places) { return {finish_sum(column_sum(places, 2048, 128))}; }
/// Several sums, one of which a cluster shares or none.
template <std::int64_t tiles, std::int64_t width>
Chain finish_column_sums(Places& places) {
    FinishColumnSums op = finish_sum(column_sum(places, 512, 768));
    op.add(column_sum(places, 48, 768));
    op.add(column_sum(places, tiles, width));
    return {op};
}

Chain fold_beta(Places& places) {
    constexpr std::int64_t kOutputs = 2048, kWidth = 1024;
    return {FoldBeta{.working = places.input(DType::bf16, kOutputs, kWidth),
                     .gamma = places.input(DType::f32, 1, kWidth),
                     .beta = places.input(DType::f32, 1, kWidth),
                     .bias = places.input(DType::f32, 1, kOutputs),
                     .v = places.result(DType::f32, 1, kOutputs)}};
}

/// Its partials go to the next kernel, as in a schedule: source's numbers until BetaBackward overwrites them.
Chain beta_backward(Places& places) {
    constexpr std::int64_t kOutputs = 2048, kWidth = 512, kTile = BetaBackward::kTileRows;
    const BetaBackward op{.db = places.input(DType::f32, 1, kOutputs),
                          .working = places.input(DType::bf16, kOutputs, kWidth),
                          .beta = places.input(DType::f32, 1, kWidth),
                          .grad = places.input(DType::f32, kOutputs, kWidth),
                          .dbeta = places.result(DType::f32, kOutputs / kTile, kWidth),
                          .tile = kTile};
    return {op, finish_sum({.partials = op.dbeta,
                            .gamma = places.input(DType::f32, 1, kWidth),
                            .grad = {places.result(DType::f32, 1, kWidth), Beta::overwrite}})};
}

/// A weight's copy, or a gradient in place, with a bias.
template <DType dtype, bool in_place>
Chain centre_columns(Places& places) {
    constexpr std::int64_t kWidth = 768;
    const View matrix = places.input(dtype, kWidth, kWidth), bias = places.input(DType::f32, 1, kWidth);
    return {CentreColumns{.matrix = matrix,
                          .out = in_place ? matrix : places.result(dtype, kWidth, kWidth),
                          .bias = bias,
                          .bias_out = in_place ? bias : places.result(DType::f32, 1, kWidth)}};
}

/// A GEMM of few tiles, in parts, leaves SMs free. There the kernel that adds the parts may start while they are made,
/// and without its wait it would add what lies in scratch: made's numbers.
Chain weight_gradient(Places& places) {
    constexpr std::int64_t kTokens = 4096, kWidth = 256;
    WeightGradient op;
    op.dy = places.input(DType::bf16, kTokens, kWidth);
    op.x = places.input(DType::bf16, kTokens, kWidth);
    op.gamma = places.input(DType::f32, 1, kWidth);
    op.grad = {places.result(DType::f32, kWidth, kWidth), Beta::overwrite};
    REQUIRE(op.parts() > 1);
    op.scratch = places.input(DType::u8, 1, op.scratch_bytes());
    return {op};
}

constexpr Chain (*kChains[])(Places&) = {finish_rstd,
                                         finish_row_sum,
                                         finish_column_sum,
                                         finish_column_sum_in_cluster,
                                         finish_column_sums<512, 768>,
                                         finish_column_sums<2048, 128>,
                                         fold_beta,
                                         beta_backward,
                                         centre_columns<DType::bf16, false>,
                                         centre_columns<DType::f32, true>,
                                         weight_gradient};

/// Whether all that the op writes are numbers: what it makes of poison is NaN.
bool gives_numbers(const Op& op, const Bytes& buffers) {
    bool numbers = true;
    for_each_operand(op, [&](const char*, const View& view, Access access) {
        if (access == Access::in || view.dtype == DType::u8) return;
        const auto first = buffers[static_cast<std::size_t>(view.buffer)].begin() + view.offset;
        const std::vector<std::byte> own(first, first + view.span_bytes());
        for (std::int64_t row = 0; row < view.rows; ++row)
            for (std::int64_t column = 0; column < view.cols; ++column)
                numbers = numbers && std::isfinite(element(own, view, row, column));
    });
    return numbers;
}

}  // namespace

TEST_CASE("small overlapped kernels wait for the kernel before them", "[gpu]") {
    if (!has_hopper()) return;
    const std::vector<cases::Buffer> buffers = {
        {"source", whole(kSource, DType::bf16), cases::Fill::normal, 1, Access::inout},
        {"made", whole(kMade, DType::bf16), cases::Fill::nothing, 0, Access::out},
        {"after", whole(kAfter, DType::bf16), cases::Fill::nothing, 0, Access::out}};
    const cases::DeviceBuffers device(buffers, 17);
    const Bytes start = download(buffers, device.memory());
    const CentreColumns slow{.matrix = whole(kSource, DType::bf16), .out = whole(kMade, DType::bf16)};
    const CentreColumns reader{.matrix = whole(kSource, DType::f32), .out = whole(kAfter, DType::f32)};
    cudaStream_t stream = nullptr;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (const auto& make : kChains) {
        Places places;
        const Chain ops = make(places);
        INFO(name_of(ops.front()) << ", chain " << &make - kChains);
        std::vector<hopper::Launch> launches = {hopper::prepare(slow, device.memory())};
        for (const Op& op : ops) launches.push_back(hopper::prepare(op, device.memory()));
        launches.push_back(hopper::prepare(reader, device.memory()));
        const auto run = [&](bool pauses) {
            for (std::size_t i = 0; i < buffers.size(); ++i)
                CUDA_CHECK(cudaMemcpyAsync(device.memory().address(buffers[i].view), start[i].data(), start[i].size(),
                                           cudaMemcpyHostToDevice, stream));
            for (const hopper::Launch& launch : launches) {
                launch(stream);
                if (pauses) CUDA_CHECK(cudaStreamSynchronize(stream));
            }
            CUDA_CHECK(cudaStreamSynchronize(stream));
            return download(buffers, device.memory());
        };
        const Bytes expected = run(true);
        for (const Op& op : ops) CHECK(gives_numbers(op, expected));
        CHECK(gives_numbers(reader, expected));
        for (int i = 0; i < kRuns; ++i) CHECK((run(false) == expected));
    }
    CUDA_CHECK(cudaStreamDestroy(stream));
}
