// The fused decode kernel against its op list run by cpu::run, and against itself: one sequence, batches,
// launches of any length, any number of SMs. All its waits end.
#include "tests/hopper/decode_on_gpu.h"

using namespace coda;
using namespace coda::test;
namespace decode = coda::hopper::decode;
using Catch::Contains;

namespace {

const DecodeSizes kShapes[] = {
    {},
    {.batch = 3, .layers = 1, .width = 528, .feed_forward = 1040, .heads = 8, .kv_heads = 2},
    {.batch = 8, .width = 2064, .feed_forward = 4624, .heads = 8, .kv_heads = 1, .head_dim = 128, .context = 700},
    {.batch = 5, .layers = 7, .width = 16, .feed_forward = 16, .heads = 3, .kv_heads = 3, .context = 5000},
    {.batch = 4, .layers = 1, .width = 80, .feed_forward = 4624},
    {.layers = 3, .width = 128, .feed_forward = 256, .heads = 2, .kv_heads = 1, .int4 = true},
    {.batch = 2, .width = 640, .feed_forward = 2176, .heads = 10, .int4 = true},
    {.batch = 8,
     .width = 2048,
     .feed_forward = 6784,
     .heads = 16,
     .head_dim = 128,
     .context = 700,
     .int4 = true,
     .int4_head = true},
    // 4-bit integers where matrices have whole groups of columns: attn_out and down; down by itself.
    {.width = 144, .feed_forward = 640, .int4 = true},
    {.batch = 4, .width = 576, .feed_forward = 1536, .heads = 9, .kv_heads = 3, .int4 = true},
    {.batch = 5, .context = 5000, .window = 1100},
    {.batch = 8, .layers = 3, .heads = 8, .kv_heads = 1, .head_dim = 128, .context = 700, .window = 70},
    {.batch = 2, .width = 256, .feed_forward = 640, .int4 = true, .window = 1},
    {.batch = 2, .layers = 3, .heads = 3, .kv_heads = 3, .bias = true},
    {.batch = 8,
     .width = 256,
     .feed_forward = 640,
     .heads = 6,
     .head_dim = 128,
     .int4 = true,
     .bias = true,
     .out_bias = true},
    {.layers = 3, .heads = 8, .kv_heads = 1, .context = 5000, .window = 200, .head_norms = true},
    {.batch = 5, .heads = 16, .kv_heads = 2, .head_dim = 128, .context = 5000, .head_norms = true},
    {.batch = 4, .width = 256, .feed_forward = 640, .heads = 6, .head_dim = 128, .int4 = true, .head_norms = true},
    // More than eight sequences.
    {.batch = 16, .width = 2064, .feed_forward = 4624, .heads = 8, .kv_heads = 1, .head_dim = 128, .context = 700},
    {.batch = 9, .layers = 3, .width = 4624, .feed_forward = 528, .heads = 3, .kv_heads = 3, .context = 400},
    {.batch = 16,
     .width = 2048,
     .feed_forward = 6784,
     .heads = 16,
     .head_dim = 128,
     .context = 400,
     .int4 = true,
     .int4_head = true},
    {.batch = 11, .layers = 3, .width = 256, .feed_forward = 640, .heads = 6, .int4 = true, .window = 70, .bias = true},
    {.batch = 12, .width = 576, .feed_forward = 1536, .heads = 9, .kv_heads = 3, .int4 = true},
    {.batch = 13, .heads = 8, .kv_heads = 1, .context = 1500, .window = 1200, .head_norms = true},
    {.batch = 10, .width = 256, .feed_forward = 640, .heads = 6, .head_dim = 128, .int4 = true, .head_norms = true},
};

}  // namespace

TEST_CASE("fused decode: one step has the logits and caches of the op list", "[gpu]") {
    if (!has_hopper()) return;
    for (const DecodeSizes& sizes : kShapes) {
        DecodeList expected(sizes), got(sizes);
        set_rows(expected);
        set_rows(got);
        run_on_cpu(expected, 1);
        OnGpu gpu(got);
        gpu.run({1});
        for (std::int64_t b = 0; b < sizes.batch; ++b) {
            CAPTURE(sizes.width, sizes.batch, b);
            if (length_of(sizes, b) == 0) {
                CHECK(got.buffers.get(got.lengths, 0, b) == 0);
                continue;
            }
            // bf16 at every vector between ops, rounded from sums of another order: a few steps of 2^-8. And of 4-bit
            // integers one of each number of the list's matrices.
            CHECK(distance(logits_of(got, b), logits_of(expected, b)) < (sizes.int4 ? 0.06 : kLogitTolerance));
            CHECK(got.buffers.get(got.lengths, 0, b) == length_of(sizes, b) + 1);
            CHECK(got.buffers.get(got.positions, 0, b) == length_of(sizes, b));
        }
        // The caches: what no step wrote has the same bits; the new rows are near.
        for (std::size_t l = 0; l < got.keys.size(); ++l)
            for (const auto& [mine, theirs] :
                 {std::pair{got.keys[l], expected.keys[l]}, std::pair{got.values[l], expected.values[l]}}) {
                // From layer 1 on, attention makes more of all roundings, as its scores are about 16. Weights that are
                // 2^-9 off (RMS) move an element by 0.08 (RMS) there and the farthest of all by 0.34. 4-bit integers
                // are rounded in other places than the list's matrices. In bf16 sums of another order round few
                // elements to the other side; with more sequences there are more of them.
                const double near = l == 0 ? 0.1 : sizes.int4 ? 0.4 : sizes.batch > 8 ? 0.17 : 0.1;
                std::int64_t changed = 0, far = 0;
                for (std::int64_t row = 0; row < mine.rows; ++row) {
                    const std::int64_t b = row / (sizes.kv_heads * sizes.context);
                    const bool newest = row % sizes.context == length_of(sizes, b) - 1;
                    for (std::int64_t j = 0; j < mine.cols; ++j) {
                        const double a = got.buffers.get(mine, row, j), e = expected.buffers.get(theirs, row, j);
                        if (newest)
                            far += !(std::abs(a - e) <= near + 0.05 * std::abs(e));  // also where one is NaN
                        else
                            changed += a != e;
                    }
                }
                CAPTURE(sizes.width, sizes.batch, l);
                CHECK(changed == 0);
                CHECK(far == 0);
            }
    }
}

TEST_CASE("fused decode: 4-bit integers are their matrix in bf16", "[gpu]") {
    if (!has_hopper()) return;
    // Scales are powers of two, and there are no weights of norms, so only fixed point rounds in one format only, by
    // 1/32640 of the largest of 128 inputs or less. That moves a result by some 2^-16, as errors of either sign add up.
    // A result of a GEMM may be rounded to the other side, and so may a logit, which is then a step off: 2^-7 of the
    // largest or less. Where a token sees others it may be two steps, as attention makes more of a q or k that was
    // rounded to the other side: its scores are about 16.
    for (const auto& [width, feed_forward] : {std::pair{256, 768}, {1024, 4096}})
        for (const bool head : {true, false})
            for (const int batch : {1, 2, 3, 8, 16}) {
                const DecodeSizes sizes{.batch = batch,
                                        .width = width,
                                        .feed_forward = feed_forward,
                                        .int4 = true,
                                        .int4_head = head,
                                        .norms = false};
                DecodeList packed(sizes), unpacked(sizes);
                unpacked.unpack();
                set_rows(packed);
                set_rows(unpacked);
                CAPTURE(width, batch, head);
                OnGpu(packed).run({1});
                OnGpu(unpacked).run({1});
                for (std::int64_t b = 0; b < batch; ++b) {
                    if (length_of(sizes, b) == 0) continue;
                    CAPTURE(b);
                    CHECK(distance(logits_of(packed, b), logits_of(unpacked, b)) <
                          (length_of(sizes, b) == 1 ? 0x1p-7 : 0x1p-6));
                }
            }
}

TEST_CASE("fused decode: the choice of a token is ChooseToken's of the same logits", "[gpu]") {
    if (!has_hopper()) return;
    const ChoiceOptions all[] = {kGreedy,
                                 {.temperature = 0.8f},
                                 {.temperature = 1.2f, .top_k = 5},
                                 {.temperature = 1, .top_p = 0.7f},
                                 {.temperature = 1, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f},
                                 {.temperature = 0, .repetition_penalty = 1.3f},
                                 {.temperature = 0.7f, .repetition_penalty = 1.3f}};
    const int batch = GENERATE(4, 5, 16);
    for (const ChoiceOptions& options : all) {
        DecodeList list({.batch = batch});
        set_rows(list, options);
        OnGpu gpu(list);
        for (int step = 0; step < 4; ++step) {
            DecodeList before({.batch = batch});
            set_rows(before, options);
            for (const View& view : {list.token, list.lengths, list.positions, list.state, list.status, list.seen})
                for (std::int64_t i = 0; i < view.rows; ++i)
                    for (std::int64_t j = 0; j < view.cols; ++j)
                        before.buffers.set(view, i, j, list.buffers.get(view, i, j));
            gpu.run({1});
            for (std::int64_t b = 0; b < batch; ++b)
                for (std::int64_t j = 0; j < list.logits.cols; ++j)
                    before.buffers.set(before.logits, b, j, list.buffers.get(list.logits, b, j));
            cpu::run(before.schedule.back().op, before.buffers.memory());
            CAPTURE(batch, step, options.temperature, options.top_k);
            for (const View& view : {list.token, list.lengths, list.positions, list.state, list.status, list.seen})
                CHECK((before.buffers.bits(view) == list.buffers.bits(view)));
        }
    }
}

TEST_CASE("fused decode: the same bits again, in launches of any length, on any number of SMs", "[gpu]") {
    if (!has_hopper()) return;
    const ChoiceOptions options{.temperature = 0.9f, .top_k = 30};
    for (const DecodeSizes& sizes : kShapes) {
        DecodeList first(sizes);
        set_rows(first, options);
        const std::vector<int> tokens = OnGpu(first).run({8, 1, 3});
        for (const auto& [launches, grid] : {std::pair<std::vector<int>, int>{{8, 1, 3}, 0},
                                             {{12}, 0},
                                             {std::vector<int>(12, 1), 0},
                                             {{12}, 1},
                                             {{5, 7}, 13}}) {
            DecodeList again(sizes);
            set_rows(again, options);
            CAPTURE(sizes.width, launches.size(), grid);
            CHECK(OnGpu(again, {}, grid).run(launches) == tokens);
            CHECK((again.buffers.bits(again.logits) == first.buffers.bits(first.logits)));
            for (std::size_t l = 0; l < first.keys.size(); ++l) {
                CHECK((again.buffers.bits(again.keys[l]) == first.buffers.bits(first.keys[l])));
                CHECK((again.buffers.bits(again.values[l]) == first.buffers.bits(first.values[l])));
            }
        }
    }
}

TEST_CASE("fused decode: a sequence has the same bits by itself, in a batch, and in another slot", "[gpu]") {
    if (!has_hopper()) return;
    // Batches of which a warp keeps one Lamport buffer, and two; and with two MMAs for the same weights.
    const auto [together, rows] = GENERATE(std::pair<int, std::vector<std::int64_t>>{8, {0, 4, 7}},
                                           std::pair<int, std::vector<std::int64_t>>{4, {0, 3}},
                                           std::pair<int, std::vector<std::int64_t>>{15, {0, 7, 8, 14}});
    for (DecodeSizes sizes : kShapes) {
        sizes.batch = together;
        DecodeList batch(sizes);
        set_rows(batch);
        DecodeList before(sizes);  // the caches before the run
        OnGpu(batch).run({6});
        sizes.batch = 1;
        for (const std::int64_t row : rows) {
            DecodeList alone(sizes);
            alone.copy_caches(0, before, row);
            // The same weights in both: they are drawn in the same order, but the caches between them are not.
            for (std::size_t i = 0; i < alone.schedule.size(); ++i)
                std::visit(
                    [&](const auto& op) {
                        if constexpr (requires { op.w; }) {
                            const auto& other = std::get<std::decay_t<decltype(op)>>(before.schedule[i].op);
                            for (std::int64_t r = 0; r < op.w.rows; ++r)
                                for (std::int64_t j = 0; j < op.w.cols; ++j)
                                    alone.buffers.set(op.w, r, j, before.buffers.get(other.w, r, j));
                        }
                    },
                    alone.schedule[i].op);
            alone.set_row(0, {.length = length_of(batch.sizes, row), .choice = kGreedy}, static_cast<int>(7 + 5 * row));
            OnGpu(alone).run({6});
            CAPTURE(sizes.width, together, row);
            CHECK(logits_of(alone, 0) == logits_of(batch, row));
            CHECK(alone.buffers.get(alone.token, 0, 0) == batch.buffers.get(batch.token, 0, row));
        }
    }
}

TEST_CASE("fused decode: sequences end by an end token, at their limit, and by cancel", "[gpu]") {
    if (!has_hopper()) return;
    DecodeList list({.batch = 2});
    list.set_row(0, {.length = 3, .choice = kGreedy, .limit = 8}, 1);
    list.set_row(1, {.length = 3, .choice = kGreedy}, 2);
    OnGpu gpu(list);
    const std::vector<int> tokens = gpu.run({12});
    CHECK(list.buffers.get(list.state, 0, 0) == static_cast<int>(RowState::length));
    CHECK(list.buffers.get(list.lengths, 0, 0) == 8);
    for (std::size_t t = 0; t < 12; ++t) {
        CHECK((tokens[2 * t] >= 0) == (t < 5));
        CHECK(tokens[2 * t + 1] >= 0);
    }
    DecodeList ending({.batch = 2});
    ending.set_row(0, {.length = 3, .choice = kGreedy}, 1);
    ending.set_row(1, {.length = 3, .choice = kGreedy, .end_token = tokens[2 * 4 + 1]}, 2);
    const std::vector<int> ended = OnGpu(ending).run({12});
    CHECK(ending.buffers.get(ending.state, 0, 1) == static_cast<int>(RowState::ended));
    for (std::size_t t = 0; t < 5; ++t) CHECK(ended[2 * t] == tokens[2 * t]);
    CHECK(ended[2 * 11] >= 0);
    CHECK(ended[2 * 11 + 1] == -1);

    DecodeList cancelled({.batch = 1});
    cancelled.set_row(0, {.length = 3, .choice = kGreedy}, 1);
    OnGpu stopping(cancelled);
    stopping.fused.cancel();
    const std::vector<int> one = stopping.run({12});
    CHECK(one[0] >= 0);
    CHECK(one[1] == -1);
    stopping.fused.resume();
    CHECK(stopping.run({3})[2] >= 0);
}

TEST_CASE("fused decode: no sequence runs, and a context that ends", "[gpu]") {
    if (!has_hopper()) return;
    for (const int batch : {2, 3, 9}) {
        DecodeList idle({.batch = batch});
        for (int b = 0; b < batch; ++b) idle.set_row(b, {.length = 0}, 1);
        CHECK(OnGpu(idle).run({4}) == std::vector<int>(static_cast<std::size_t>(4 * batch), -1));
    }
    DecodeList full({.batch = 1});
    full.set_row(0, {.length = 296, .choice = kGreedy, .limit = 300}, 1);
    const std::vector<int> tokens = OnGpu(full).run({8});
    CHECK(full.buffers.get(full.lengths, 0, 0) == 300);
    CHECK(tokens[3] >= 0);
    CHECK(tokens[4] == -1);
}

TEST_CASE("fused decode: a logit that is not finite fails only its sequence", "[gpu]") {
    if (!has_hopper()) return;
    const int batch = GENERATE(2, 3, 5, 9, 16);
    const int failing = GENERATE_COPY(1, batch - 1);
    DecodeList list({.batch = batch});
    for (int b = 0; b < batch; ++b) list.set_row(b, {.length = 3, .choice = kGreedy}, b == failing ? 2 : 1);
    const auto& embed = std::get<Embed>(list.schedule.front().op);
    list.buffers.set(embed.table, 2, 5, NAN);
    OnGpu(list).run({1});
    for (int b = 0; b < batch; ++b) {
        CAPTURE(batch, failing, b);
        CHECK(list.buffers.get(list.state, 0, b) ==
              static_cast<int>(b == failing ? RowState::failed : RowState::running));
    }
    CHECK(list.buffers.get(list.status, 0, failing) == 0);
}

TEST_CASE("fused decode: a tile that no SM has ends in the watchdog's message", "[gpu]") {
    if (!has_hopper()) return;
    const int batch = GENERATE(1, 0 + decode::kLamportFrom, 9);
    const bool packed = GENERATE(false, true);
    // qkv, attention, attn_out, gate_up and down of layer 1, in this order.
    for (int op = 5; op < 10; ++op) {
        DecodeList list(packed ? DecodeSizes{.batch = batch, .width = 256, .feed_forward = 640, .int4 = true}
                               : DecodeSizes{.batch = batch});
        set_rows(list);
        GpuCopy copy(list.buffers, list.views());
        decode::DecodePlan plan = decode::lower(list.schedule, copy.memory(), hopper::multiprocessors());
        // SM s then has tiles s + 1, s + 1 + grid, ...: all but tile 0.
        plan.ops[static_cast<std::size_t>(op)].rotation = -1;
        decode::FusedDecode fused(std::move(plan), {.watchdog_seconds = 0.2});
        std::string message = "none";
        try {
            fused.launch(4, nullptr);
            fused.finish(nullptr);
        } catch (const Error& error) {
            message = error.what();
        }
        CAPTURE(batch, packed, op);
        CHECK_THAT(message, Contains("waited too long for its input") && Contains("of step 0") &&
                                Contains(text("in op ", op + 1, " ")));
    }
}
