// All waits of the fused decode kernel end, however late a warp comes, and nobody reads what is not meant for him: on a
// model of the kernel's warps.
#include "kernels/hopper/decode/plan/lower.h"
#include "tests/catch.h"
#include "tests/kernels/decode_list.h"
#include "tests/kernels/decode_model.h"
#include "tests/sanitized.h"

using namespace coda;
using namespace coda::hopper::decode;
using namespace coda::test;
using Catch::Contains;

namespace {

/// How many orders of the warps a test tries. Sanitized runs try few: they take several times as long and look for
/// something else. A planted mistake has all orders in which to show.
constexpr unsigned orders(unsigned usually, unsigned sanitized) { return kSanitized ? sanitized : usually; }

struct Case {
    DecodeSizes sizes;
    std::vector<int> lengths;
};

/// One part and eight, one slice and many, slices that are kept and that are fetched for two tiles, idle sequences,
/// splits, several tiles per SM and none.
const Case kCases[] = {
    {{}, {1}},
    {{.layers = 3, .width = 16, .feed_forward = 16, .heads = 3, .kv_heads = 3, .context = 5000}, {4400}},
    {{.batch = 3, .layers = 2, .width = 528, .feed_forward = 1040, .heads = 8, .kv_heads = 2}, {290, 0, 64}},
    {{.batch = 8, .layers = 4, .width = 80, .feed_forward = 144, .context = 1200}, {1, 0, 2, 64, 65, 129, 700, 1100}},
    {{.batch = 2, .layers = 2, .width = 1088, .feed_forward = 4624, .heads = 8, .kv_heads = 1, .head_dim = 128},
     {0, 33}},
    {{.batch = 5, .layers = 4, .width = 208, .feed_forward = 4624}, {1, 0, 2, 64, 65}},
    {{.batch = 4, .layers = 2, .width = 80, .feed_forward = 4624}, {1, 0, 2, 64}},
    // More than eight sequences.
    {{.batch = 9, .layers = 3, .width = 208, .feed_forward = 4624}, {1, 0, 2, 64, 65, 0, 7, 9, 130}},
    {{.batch = 16, .layers = 3, .width = 80, .feed_forward = 144, .context = 1200},
     {1, 0, 2, 64, 65, 129, 700, 1100, 0, 3, 1150, 1, 1, 0, 90, 33}},
    // Windows: of one position, within a block, and of several splits.
    {{.layers = 2, .window = 1}, {7}},
    {{.batch = 3, .layers = 2, .window = 70}, {69, 0, 290}},
    {{.batch = 2, .layers = 2, .context = 5000, .window = 1100}, {4400, 1099}},
    // Norms of heads, of four tiles and of eight.
    {{.layers = 3, .heads = 8, .kv_heads = 2, .head_norms = true}, {290}},
    {{.batch = 4, .layers = 3, .head_dim = 128, .window = 40, .head_norms = true}, {1, 0, 290, 33}},
    // Members of the batch that are of one sequence: within a block, across two, across a window's begin, idle ones.
    {{.batch = 8, .layers = 3, .rows_each = 8}, {60, 61, 62, 63, 64, 65, 66, 67}},
    {{.batch = 8, .layers = 3, .context = 700, .window = 130, .rows_each = 4}, {629, 630, 631, 632, 1, 2, 0, 0}},
    {{.batch = 8, .layers = 3, .head_dim = 128, .head_norms = true, .rows_each = 4}, {31, 32, 33, 0, 0, 0, 0, 0}},
    {{.batch = 8, .layers = 2, .width = 128, .feed_forward = 1024, .int4 = true, .rows_each = 8},
     {250, 251, 252, 253, 254, 255, 256, 257}},
    // 4-bit integers: one reader of a stage, two, four and eight; a stage with nothing in it; a head in bf16 and not.
    {{.layers = 2, .width = 128, .feed_forward = 1024, .heads = 6, .kv_heads = 2, .int4 = true}, {64}},
    {{.batch = 2, .layers = 2, .width = 640, .feed_forward = 2176, .heads = 32, .kv_heads = 8, .int4 = true}, {0, 33}},
    {{.batch = 5, .layers = 2, .width = 1152, .feed_forward = 4224, .int4 = true, .int4_head = true},
     {1, 0, 2, 64, 65}},
    // Of some matrices only: attn_out and down; down by itself.
    {{.batch = 3, .layers = 2, .width = 144, .feed_forward = 640, .int4 = true}, {1, 0, 65}},
    {{.batch = 10, .layers = 2, .width = 208, .feed_forward = 1152, .heads = 3, .kv_heads = 3, .int4 = true},
     {1, 0, 2, 64, 65, 0, 7, 9, 130, 3}},
    // SMs in pairs: inputs that are kept and fetched, tiles that only one SM of a pair has.
    {{.batch = 9, .layers = 2, .width = 384, .feed_forward = 4224, .int4 = true}, {1, 0, 2, 64, 65, 0, 7, 9, 130}},
    {{.batch = 16, .layers = 2, .width = 128, .feed_forward = 1152, .int4 = true, .int4_head = true},
     {1, 0, 2, 64, 65, 129, 70, 11, 0, 3, 15, 1, 1, 0, 90, 33}},
};

ModelOptions options_of(const Case& c, unsigned seed) {
    ModelOptions options{.lengths = c.lengths, .greedy = {}, .last_steps = {}, .seed = seed, .sleepers = {}};
    if (c.sizes.rows_each > 1) options.steps = 1;
    for (std::size_t b = 0; b < c.lengths.size(); ++b) options.greedy.push_back((b + seed) % 2 == 0);
    return options;
}

}  // namespace

TEST_CASE("fused decode: every wait ends, and every read finds what it needs, in any order of the warps") {
    for (const Case& c : kCases) {
        const DecodeList list(c.sizes);
        for (const int grid : {1, 2, 13, 132}) {
            const DecodePlan plan = lower(list.schedule, list.buffers.memory(), grid);
            for (unsigned seed = 1; seed <= orders(3, 1); ++seed)
                for (const double late : {0.0, 0.1, 0.5, 0.95}) {
                    CAPTURE(c.sizes.width, c.sizes.batch, grid, seed, late);
                    CHECK_NOTHROW(DecodeModel(plan, options_of(c, seed)).run(late));
                }
        }
    }
}

namespace {

/// What the model finds wrong with runs that stop after their second step, of three; "" if nothing.
std::string fault_of_stops(const Case& c, int grid, bool any_stop) {
    const DecodeList list(c.sizes);
    const DecodePlan plan = lower(list.schedule, list.buffers.memory(), grid);
    for (unsigned seed = 1; seed <= (any_stop ? 10 : orders(10, 2)); ++seed) {
        ModelOptions options = options_of(c, seed);
        options.stop_after = 1;
        options.sleepers = {{static_cast<int>(seed) % std::min(grid, 3), kConsumerWarps - 1}};
        options.any_stop = any_stop;
        try {
            DecodeModel(plan, options).run(seed % 2 == 0 ? 0.5 : 0.95);
        } catch (const Error& error) {
            return error.what();
        }
    }
    return "";
}

}  // namespace

TEST_CASE("fused decode: a stop ends all warps after a step that every sequence has made") {
    for (const Case& c : kCases)
        for (const int grid : {1, 13, 132}) {
            if (c.sizes.rows_each > 1) continue;  // a launch has one step
            CAPTURE(c.sizes.width, c.sizes.batch, grid);
            CHECK(fault_of_stops(c, grid, false) == "");
        }
    // SMs 0 and 1 choose a token each, and have warps without other work. One that took the stop of the step in which
    // it should meet the others for its own would take them along, and all would wait for the token.
    const Case small{{.batch = 2, .layers = 2, .width = 80, .feed_forward = 144}, {5, 33}};
    CHECK(fault_of_stops(small, 132, false) == "");
    CHECK_THAT(fault_of_stops(small, 132, true), Contains("waits for the token"));
}

TEST_CASE("fused decode: the model of its waits finds a word that comes before the one before it was read") {
    const Case c{{.batch = 2, .layers = 3, .width = 80, .feed_forward = 144}, {0, 33}};  // few enough for words
    const DecodeList list(c.sizes);
    const DecodePlan plan = lower(list.schedule, list.buffers.memory(), 132);
    ModelOptions options = options_of(c, 1);
    options.idle_words = true;
    CHECK_THROWS_WITH(DecodeModel(plan, options).run(0.5), Contains("its input") && Contains("overwritten"));
}

TEST_CASE("fused decode: the model of its waits finds an input that is written over attention's sums") {
    const bool int4 = GENERATE(false, true);
    // A block for every warp, as one without a block would run ahead and arrive twice.
    const Case c{{.batch = 2, .layers = 3, .width = 128, .feed_forward = 256, .context = 700, .int4 = int4},
                 {500, 510}};
    const DecodeList list(c.sizes);
    const DecodePlan plan = lower(list.schedule, list.buffers.memory(), 13);
    ModelOptions options = options_of(c, 1);
    for (int sm = 0; sm < 13; ++sm) options.sleepers.emplace_back(sm, kConsumerWarps);
    CHECK_NOTHROW(DecodeModel(plan, options).run(0.5));
    options.consumers_wait = false;
    CHECK_THROWS_WITH(DecodeModel(plan, options).run(0.5), Contains("written over attention's sums"));
}

TEST_CASE("fused decode: the model of its waits finds Lamport buffers that are used before they are empty") {
    const Case c{{.batch = 8, .layers = 6, .width = 80, .feed_forward = 144, .context = 1200},
                 {1, 0, 2, 64, 65, 129, 700, 1100}};
    const DecodeList list(c.sizes);
    const DecodePlan plan = lower(list.schedule, list.buffers.memory(), 132);
    for (const int before : {0, 3}) {  // two layers before would come in time, too
        std::string fault;
        for (unsigned seed = 1; seed <= 6 && fault.empty(); ++seed) {
            ModelOptions options = options_of(c, seed);
            // An epilogue warp that is late with what it empties.
            options.sleepers = {{20 + 4 * static_cast<int>(seed), kConsumerWarps}};
            CHECK_NOTHROW(DecodeModel(plan, options).run(0.5));
            options.arrivals_before = before;
            options.epilogue_waits = options.checks_order = false;
            try {
                DecodeModel(plan, options).run(0.5);
            } catch (const Error& error) {
                fault = error.what();
            }
        }
        CAPTURE(before);
        CHECK_THAT(fault, Contains("a Lamport buffer has epoch"));
    }
}

TEST_CASE("fused decode: the model of its waits finds Lamport buffers that nothing orders, though they come in time") {
    const Case c{{.batch = 3, .layers = 6, .width = 80, .feed_forward = 144, .context = 1200}, {1, 64, 1100}};
    const DecodeList list(c.sizes);
    const DecodePlan plan = lower(list.schedule, list.buffers.memory(), 13);
    ModelOptions options = options_of(c, 1);
    CHECK_NOTHROW(DecodeModel(plan, options).run(0));
    options.arrivals_before = 2;
    CHECK_THROWS_WITH(DecodeModel(plan, options).run(0), Contains("emptied with no order after its store"));
    options.arrivals_before = 1;
    options.epilogue_waits = false;
    CHECK_THROWS_WITH(DecodeModel(plan, options).run(0), Contains("emptied with no order after its store"));
    options.checks_order = false;
    CHECK_NOTHROW(DecodeModel(plan, options).run(0));
}

TEST_CASE("fused decode: the model of its waits finds sums that one epilogue warp has read and the other has not") {
    const Case c{{.batch = 8, .layers = 2, .width = 80, .feed_forward = 144}, {1, 2, 64, 65, 3, 0, 129, 33}};
    const DecodeList list(c.sizes);
    const DecodePlan plan = lower(list.schedule, list.buffers.memory(), 2);
    ModelOptions options = options_of(c, 1);
    options.sleepers = {{0, kConsumerWarps + 1}};
    CHECK_NOTHROW(DecodeModel(plan, options).run(0));
    options.awaits_both = false;
    CHECK_THROWS_WITH(DecodeModel(plan, options).run(0), Contains("were overwritten by those of"));
}

TEST_CASE("fused decode: the model of its waits finds an input that a partner writes before it is lent") {
    const Case c{{.batch = 9, .layers = 2, .width = 384, .feed_forward = 640, .int4 = true},
                 {1, 0, 2, 64, 65, 0, 7, 9, 130}};
    const DecodeList list(c.sizes);
    const DecodePlan plan = lower(list.schedule, list.buffers.memory(), 2);
    ModelOptions options = options_of(c, 1);
    options.sleepers = {{1, 3}};
    CHECK_NOTHROW(DecodeModel(plan, options).run(0.5));
    options.awaits_loan = false;
    CHECK_THROWS_WITH(DecodeModel(plan, options).run(0.5), Contains("which was not lent"));
}

TEST_CASE("fused decode: all warps end after the step that ends the last sequence") {
    const Case c{{.batch = 8, .layers = 1, .width = 80, .feed_forward = 144}, {5, 0, 0, 0, 0, 0, 33, 0}};
    const DecodeList list(c.sizes);
    for (const int grid : {40, 132}) {
        const DecodePlan plan = lower(list.schedule, list.buffers.memory(), grid);
        const auto fault_of = [&](bool any_end) -> std::string {
            for (unsigned seed = 1; seed <= (any_end ? 200 : orders(200, 20)); ++seed) {
                ModelOptions options = options_of(c, seed);
                options.last_steps = {1, 0, 0, 0, 0, 0, 0, 0};
                options.any_end = any_end;
                // A consumer warp that comes late, where sequence 5 is committed, and an epilogue warp with the largest
                // logits of sequences 4 to 7.
                options.sleepers = {{5, kConsumerWarps - 1}, {static_cast<int>(seed) % grid, kConsumerWarps + 1}};
                try {
                    DecodeModel(plan, options).run(0.5);
                } catch (const Error& error) {
                    return error.what();
                }
            }
            return "";
        };
        CAPTURE(grid);
        CHECK(fault_of(false) == "");
        // One that took the end of a later step for its own would take its SM along before sequence 5 is committed.
        CHECK_THAT(fault_of(true), Contains("waits for the token"));
    }
}
