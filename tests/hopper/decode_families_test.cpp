// What families add to LLaMA in the fused decode kernel, against the op list run by cpu::run: windows, biases of
// attention's projections, norms of q and k heads. decode_test.cpp has shapes with them in all of its tests.
#include "tests/hopper/decode_on_gpu.h"

using namespace coda;
using namespace coda::test;
using hopper::decode::DecodePlan;

namespace {

constexpr DecodeSizes kWindow{.batch = 4, .window = 3};
constexpr DecodeSizes kWindows[] = {
    kWindow,
    {.batch = 5, .context = 5000, .window = 1100},
    {.batch = 8, .layers = 3, .heads = 8, .kv_heads = 1, .head_dim = 128, .context = 700, .window = 70}};
constexpr DecodeSizes kBias{.batch = 2, .layers = 3, .bias = true, .out_bias = true};
constexpr DecodeSizes kNorms{.batch = 3, .layers = 3, .head_norms = true};

}  // namespace

TEST_CASE("fused decode: positions before the window count for nothing, whatever they hold", "[gpu]") {
    if (!has_hopper()) return;
    for (const DecodeSizes& sizes : kWindows) {
        DecodeList list(sizes), poisoned(sizes);
        set_rows(list);
        set_rows(poisoned);
        for (std::size_t l = 0; l < list.keys.size(); ++l)
            for (const View& cache : {poisoned.keys[l], poisoned.values[l]})
                for (std::int64_t row = 0; row < cache.rows; ++row) {
                    const std::int64_t b = row / (sizes.kv_heads * sizes.context);
                    if (row % sizes.context >= length_of(sizes, b) - sizes.window) continue;
                    for (std::int64_t j = 0; j < cache.cols; ++j) poisoned.buffers.set(cache, row, j, NAN);
                }
        CAPTURE(sizes.window, sizes.batch);
        CHECK(OnGpu(poisoned).run({3}) == OnGpu(list).run({3}));
        CHECK((poisoned.buffers.bits(poisoned.logits) == list.buffers.bits(list.logits)));
    }
}

TEST_CASE("fused decode: the comparison with the op list sees another window, bias or gain", "[gpu]") {
    if (!has_hopper()) return;
    const auto farthest = [](const DecodeSizes& sizes, const std::function<void(DecodePlan&)>& change) {
        DecodeList expected(sizes), got(sizes);
        set_rows(expected);
        set_rows(got);
        run_on_cpu(expected, 1);
        OnGpu(got, {}, 0, change).run({1});
        double most = 0;
        for (std::int64_t b = 0; b < sizes.batch; ++b)
            if (length_of(sizes, b) > 0) most = std::max(most, distance(logits_of(got, b), logits_of(expected, b)));
        return most;
    };
    for (const DecodeSizes& sizes : {kWindow, kBias, kNorms}) CHECK(farthest(sizes, {}) < kLogitTolerance);
    for (const int more : {-1, 1})
        CHECK(farthest(kWindow, [&](DecodePlan& plan) { plan.operands.shape.window += more; }) > kLogitTolerance);
    CHECK(farthest(kBias, [](DecodePlan& plan) { plan.operands.bias.first += 2; }) > kLogitTolerance);
    CHECK(farthest(kBias, [](DecodePlan& plan) { plan.operands.bias.apart = 0; }) > kLogitTolerance);
    CHECK(farthest(kBias, [](DecodePlan& plan) { plan.operands.out_bias.first += 2; }) > kLogitTolerance);
    CHECK(farthest(kBias, [](DecodePlan& plan) { plan.operands.out_bias.apart = 0; }) > kLogitTolerance);
    CHECK(farthest(kNorms, [](DecodePlan& plan) { plan.operands.gain.first += 2; }) > kLogitTolerance);
    CHECK(farthest(kNorms, [](DecodePlan& plan) { plan.operands.gain.apart = 0; }) > kLogitTolerance);
    CHECK(farthest(kNorms, [](DecodePlan& plan) { plan.operands.shape.head_norms = false; }) > kLogitTolerance);
}
