// Products of the fused decode kernel on whole numbers, exactly: every stage, slice, fragment and hand-over of a word
// that is lost, doubled or in the wrong place changes a sum.
//
// Inputs of +-1 have a mean square of 1, so with eps = 0 the norm multiplies by 1; at position 0 RoPE turns by nothing.
#include "kernels/hopper/decode/launch.h"
#include "kernels/hopper/decode/plan/lower.h"
#include "kernels/hopper/sm90/device.h"
#include "tests/hopper/gpu_copy.h"
#include "tests/kernels/decode_list.h"

using namespace coda;
using namespace coda::test;
namespace decode = coda::hopper::decode;

namespace {

template <class Fn>
void fill(Buffers& buffers, const View& view, const Fn& fn) {
    for (std::int64_t i = 0; i < view.rows; ++i)
        for (std::int64_t j = 0; j < view.cols; ++j) buffers.set(view, i, j, fn(i, j));
}

int sign_of(std::int64_t token, std::int64_t j) { return (token * 37 + j * 11 + token * j) % 7 < 3 ? -1 : 1; }
int weight_of(std::int64_t row, std::int64_t column) {
    return static_cast<int>((row * 29 + column * 13 + row * column % 17) % 5) - 2;
}

/// Layer matrices are 0 where `layers` is false, so that x stays what the embedding is.
void make_whole(DecodeList& list, bool layers) {
    Buffers& buffers = list.buffers;
    for (Step& step : list.schedule)
        std::visit(
            [&](auto& op) {
                if constexpr (requires { op.eps; }) op.eps = 0;
                if constexpr (requires {
                                  op.table;
                                  op.tokens;
                              })
                    fill(buffers, op.table, sign_of);
                if constexpr (requires { op.w; })
                    fill(buffers, op.w, [&](std::int64_t i, std::int64_t j) {
                        return layers || step.layer < 0 ? weight_of(i, j) : 0;
                    });
            },
            step.op);
    for (std::int64_t b = 0; b < list.sizes.batch; ++b)
        list.set_row(b, {.length = 1, .choice = {.temperature = 0}}, static_cast<int>(3 * b + 1));
}

void run_one(DecodeList& list, int grid) {
    GpuCopy copy(list.buffers, list.views());
    decode::FusedDecode fused(decode::lower(list.schedule, copy.memory(), grid));
    fused.launch(1, nullptr);
    fused.finish(nullptr);
    copy.download();
}

/// Row `row` of the weights times what the embedding has for sequence b, as bf16 holds it.
double product_of(std::int64_t row, std::int64_t b, std::int64_t width) {
    int sum = 0;
    for (std::int64_t j = 0; j < width; ++j) sum += weight_of(row, j) * sign_of(3 * b + 1, j);
    return static_cast<double>(static_cast<float>(Bf16(static_cast<float>(sum))));
}

/// One, two, four, eight and more slices; a single MMA step, odd numbers of them, more than a warp's in a round; a
/// stage that reaches behind the matrix, and one that lies behind it; of the last, whole slices of eight blocks before
/// an empty one.
constexpr std::int64_t kWidths[] = {16, 48, 320, 528, 1040, 1088, 2048, 4112, 4624, 7664};

}  // namespace

TEST_CASE("fused decode: the head's GEMM is exact on whole numbers", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t width : kWidths)
        for (const std::int64_t batch : {1, 2, 5, 8, 9, 16})
            for (const int grid : {1, 7, hopper::multiprocessors()}) {
                const bool wide = width > 5000;  // the host fills the matrix element by element
                DecodeList list({.batch = batch,
                                 .layers = 1,
                                 .width = width,
                                 .vocab = wide ? 101 : 2101,
                                 .padded_vocab = wide ? 112 : 2112});
                make_whole(list, false);
                run_one(list, grid);
                CAPTURE(width, batch, grid);
                for (std::int64_t b = 0; b < batch; ++b)
                    for (std::int64_t row = 0; row < list.logits.cols; ++row)
                        REQUIRE(list.buffers.get(list.logits, b, row) == product_of(row, b, width));
            }
}

TEST_CASE("fused decode: the new keys and values are exact on whole numbers", "[gpu]") {
    if (!has_hopper()) return;
    for (const std::int64_t width : kWidths)
        for (const std::int64_t head_dim : {64, 128}) {
            DecodeList list({.batch = 3,
                             .layers = 1,
                             .width = width,
                             .heads = 8,
                             .kv_heads = 2,
                             .head_dim = head_dim,
                             .context = 40});
            make_whole(list, true);
            run_one(list, hopper::multiprocessors());
            CAPTURE(width, head_dim);
            const DecodeSizes& sizes = list.sizes;
            for (std::int64_t b = 0; b < sizes.batch; ++b)
                for (std::int64_t h = 0; h < sizes.kv_heads; ++h)
                    for (std::int64_t j = 0; j < head_dim; ++j) {
                        const std::int64_t cache_row = (b * sizes.kv_heads + h) * sizes.context;
                        const std::int64_t key = (sizes.heads + h) * head_dim + j;
                        REQUIRE(list.buffers.get(list.keys[0], cache_row, j) == product_of(key, b, width));
                        REQUIRE(list.buffers.get(list.values[0], cache_row, j) ==
                                product_of(key + sizes.kv_heads * head_dim, b, width));
                    }
        }
}
