// The ops of the fused decode kernel, made from an op list; what it refuses; its memory.
#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/hopper/decode/plan/attention_input.h"
#include "kernels/hopper/decode/plan/lower.h"
#include "kernels/hopper/decode/plan/shared_state.h"
#include "kernels/hopper/sm90/limits.h"
#include "tests/catch.h"
#include "tests/kernels/decode_list.h"

using namespace coda;
using namespace coda::hopper::decode;
using namespace coda::test;
using Catch::Contains;

namespace {

std::string refusal_of(const DecodeList& list) {
    try {
        lower(list.schedule, list.buffers.memory(), 132);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}
std::string refusal_of(const DecodeSizes& sizes) { return refusal_of(DecodeList(sizes)); }

template <class T>
T& op_of(DecodeList& list, int which = 0) {
    for (Step& step : list.schedule)
        if (std::holds_alternative<T>(step.op) && which-- == 0) return std::get<T>(step.op);
    throw Error("no such op");
}
std::string refusal_after(const std::function<void(DecodeList&)>& change) {
    DecodeList list(DecodeSizes{});
    change(list);
    return refusal_of(list);
}

/// The sizes of a released model; its list on no memory.
DecodePlan plan_of(int layers, int width, int feed_forward, int heads, int kv_heads, int head_dim, int batch) {
    DecodePlan plan;
    plan.grid = 132;
    plan.operands.shape = {.batch = batch,
                           .width = width,
                           .feed_forward = feed_forward,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .head_dim = head_dim,
                           .context = 8192,
                           .vocab = 128256,
                           .padded_vocab = 128256};
    const Shape& shape = plan.operands.shape;
    const auto add = [&](OpKind kind, int rows, int columns) {
        DecodeOp op;
        op.kind = kind;
        op.tiles = rows / kTileRows;
        op.columns = columns;
        plan.ops.push_back(op);
    };
    for (int l = 0; l < layers; ++l) {
        add(OpKind::qkv, shape.qkv_columns(), width);
        add(OpKind::attention, 0, 0);
        add(OpKind::attn_out, width, shape.q_columns());
        add(OpKind::gate_up, 2 * feed_forward, width);
        add(OpKind::down, width, feed_forward);
    }
    add(OpKind::head, shape.padded_vocab, width);
    add(OpKind::choose, 0, 0);
    return plan;
}

}  // namespace

TEST_CASE("fused decode: an op list becomes five ops a layer, the head and the choice") {
    DecodeList list({.batch = 3});
    const Memory memory = list.buffers.memory();
    for (const int grid : {1, 5, 132}) {
        const DecodePlan plan = lower(list.schedule, memory, grid);
        REQUIRE(plan.ops.size() == 5 * 2 + 2);
        constexpr OpKind kLayer[] = {OpKind::qkv, OpKind::attention, OpKind::attn_out, OpKind::gate_up, OpKind::down};
        std::int64_t tiles = 0;
        std::vector<int> of_sm(static_cast<std::size_t>(grid));
        for (std::size_t s = 0; s < plan.ops.size(); ++s) {
            const DecodeOp& op = plan.ops[s];
            CAPTURE(s, grid);
            CHECK(op.kind == (s < 10 ? kLayer[s % 5] : s == 10 ? OpKind::head : OpKind::choose));
            CHECK(op.rotation == tiles % grid);
            CHECK(op.embedded == (s < 3));
            const int of_op = op.kind == OpKind::attention ? 3 * plan.operands.shape.kv_heads : op.tiles;
            for (int sm = 0; sm < grid; ++sm)
                of_sm[static_cast<std::size_t>(sm)] += own_tiles(of_op, op.rotation, sm, grid).number;
            tiles += of_op;
        }
        const auto [least, most] = std::minmax_element(of_sm.begin(), of_sm.end());
        CHECK(*most - *least <= 1);
        CHECK(plan.ops[0].tiles == 512 / 16);
        CHECK(plan.ops[0].columns == 80);
        CHECK(plan.ops[2].columns == 256);
        CHECK(plan.ops[3].tiles == 288 / 16);
        CHECK(plan.ops[4].columns == 144);
        CHECK(plan.ops[10].tiles == 112 / 16);
        CHECK(plan.ops[0].weights == memory.at<Bf16>(op_of<LinearRope>(list).w));
        CHECK(plan.ops[8].weights == memory.at<Bf16>(op_of<LinearSwiglu>(list, 1).w));
        CHECK(plan.ops[5].keys == memory.at<Bf16>(list.keys[1]));
        CHECK(plan.ops[6].values == memory.at<Bf16>(list.values[1]));
        CHECK(plan.operands.shape.vocab == 101);
        CHECK(plan.operands.shape.context == 300);
        CHECK(plan.operands.shape.window == 300);
        CHECK(plan.operands.eps == 1e-5f);
        CHECK(plan.operands.choice.token == memory.at<std::int32_t>(list.token));
        CHECK(plan.operands.choice.ends == 2);
    }
    CHECK(lower(list.schedule, Memory::shapes_only(), 132).ops.size() == 12);
}

TEST_CASE("fused decode: members of the batch may be of one sequence") {
    DecodeList list({.batch = 8, .rows_each = 4});
    const DecodePlan plan = lower(list.schedule, list.buffers.memory(), 132);
    CHECK(plan.shares_caches());
    for (const DecodeOp& op : plan.ops) {
        const bool has_caches = op.kind == OpKind::qkv || op.kind == OpKind::attention;
        CHECK(op.shared_log2 == (has_caches ? 2 : 0));
        if (!has_caches) continue;
        CHECK(op.cache_of(3) == 0);
        CHECK(op.cache_of(4) == 1);
        CHECK(op.earlier(3) == 3);
        CHECK(op.earlier(4) == 0);
    }
    // Few rows of a small model, whose inputs leave no room: the kept rows need more.
    const DecodeList small({.batch = 4,
                            .layers = 1,
                            .width = 16,
                            .feed_forward = 16,
                            .heads = 8,
                            .kv_heads = 1,
                            .head_dim = 128,
                            .rows_each = 4});
    const DecodePlan small_plan = lower(small.schedule, small.buffers.memory(), 132);
    CHECK(layout_of(small_plan).input_bytes >= AttentionInput::bytes(8, 128, true));
    CHECK(AttentionInput::bytes(8, 128, true) == AttentionInput::bytes(8, 128, false) + 6 * 512);
    CHECK(!lower(DecodeList({.batch = 8}).schedule, Memory::shapes_only(), 132).shares_caches());
    op_of<DecodeAttention>(list, 1).rows_each = 8;
    CHECK(refusal_of(list) == "DecodeAttention: qkv has 8 rows, and the cache has 2 sequences of 8 rows each");
}

TEST_CASE("fused decode: 4-bit integers are read as they are, with the weights of norms") {
    DecodeList list({.batch = 3, .width = 256, .feed_forward = 640, .int4 = true});
    const Memory memory = list.buffers.memory();
    const DecodePlan plan = lower(list.schedule, memory, 132);
    REQUIRE(plan.ops.size() == 12);
    CHECK(plan.operands.shape.int4);
    const float* norms = memory.at<float>(op_of<UnpackInt4>(list).gamma);
    CHECK(plan.operands.norms == norms);
    for (int l = 0, unpack = 0; l < 2; ++l)
        for (const int op : {0, 2, 3, 4}) {
            CAPTURE(l, op);
            const UnpackInt4& from = op_of<UnpackInt4>(list, unpack++);
            const DecodeOp& found = plan.ops[static_cast<std::size_t>(5 * l + op)];
            CHECK(found.int4);
            CHECK(found.weights == memory.at<std::int32_t>(from.units));
            CHECK(found.norm == (op == 0 ? 512 * l : op == 3 ? 512 * l + 256 : -1));
            CHECK(found.tiles == from.working.rows / 16);
            CHECK(found.columns == from.working.cols);
        }
    CHECK(!plan.ops[10].int4);
    CHECK(plan.ops[10].weights == memory.at<Bf16>(op_of<Linear>(list).w));
    CHECK(plan.lds[10] == 256);

    DecodeList head({.width = 256, .feed_forward = 640, .int4_head = true});
    const DecodePlan with_head = lower(head.schedule, head.buffers.memory(), 132);
    CHECK(with_head.operands.shape.int4);
    CHECK(!with_head.ops[3].int4);
    CHECK(with_head.ops[10].int4);
    CHECK(with_head.ops[10].norm == 0);

    head.unpack();
    const DecodePlan unpacked = lower(head.schedule, head.buffers.memory(), 132);
    CHECK(!unpacked.operands.shape.int4);
    CHECK(!unpacked.ops[10].int4);

    op_of<UnpackInt4>(list, 1).working.version += 1;
    CHECK_THAT(refusal_of(list), Contains("layer 0 attn_out") && Contains("operand w"));
    DecodeList other({.width = 256, .feed_forward = 640, .int4 = true});
    op_of<UnpackInt4>(other, 2).gamma = {};
    CHECK(lower(other.schedule, other.buffers.memory(), 132).ops[3].norm == -1);
    std::swap(op_of<UnpackInt4>(other, 0).gamma, op_of<UnpackInt4>(other, 4).gamma);
    CHECK_THAT(refusal_of(other), Contains("layer 1 qkv") && Contains("gamma"));
}

TEST_CASE("fused decode: a window that the context exceeds is the plan's") {
    for (const int window : {1, 299, 300, 301}) {
        const DecodeList list({.window = window});
        const DecodePlan plan = lower(list.schedule, list.buffers.memory(), 132);
        CHECK(plan.operands.shape.window == std::min(window, 300));
        CHECK(plan.operands.shape.extended() == (window < 300));
    }
}

TEST_CASE("fused decode: biases of all layers are equally far apart") {
    DecodeList list({.layers = 3, .bias = true, .out_bias = true});
    const Memory memory = list.buffers.memory();
    const DecodePlan plan = lower(list.schedule, memory, 132);
    CHECK(plan.operands.shape.bias);
    CHECK(plan.operands.shape.out_bias);
    CHECK(plan.operands.shape.extended());
    for (int l = 0; l < 3; ++l) {
        CHECK(plan.operands.bias.of(l) == memory.at<float>(op_of<LinearRope>(list, l).bias));
        CHECK(plan.operands.out_bias.of(l) == memory.at<float>(op_of<LinearResidualRms>(list, 2 * l).bias));
    }
    CHECK(lower(list.schedule, Memory::shapes_only(), 132).operands.shape.bias);
    CHECK(!lower(DecodeList(DecodeSizes{}).schedule, Memory::shapes_only(), 132).operands.shape.bias);

    View& bias = op_of<LinearRope>(list, 2).bias;
    const View right = std::exchange(bias, op_of<LinearRope>(list, 1).bias);
    CHECK_THAT(refusal_of(list), Contains("layer 2 qkv: operand bias is not contiguous"));
    bias = {};
    CHECK_THAT(refusal_of(list), Contains("layer 2 qkv: operand bias is missing"));
    bias = right;
    CHECK(refusal_of(list) == "accepted");
    bias.cols -= 1;
    CHECK_THAT(refusal_of(list), Contains("bias"));
}

TEST_CASE("fused decode: norms of heads have the gains of their layers and words of their own") {
    const DecodeSizes sizes{.batch = 3, .layers = 3, .head_norms = true};
    DecodeList list(sizes);
    const Memory memory = list.buffers.memory();
    const DecodePlan plan = lower(list.schedule, memory, 132);
    CHECK(plan.operands.shape.head_norms);
    CHECK(plan.operands.shape.rotated_tiles() == 6 * 64 / 16);
    for (int l = 0; l < 3; ++l) CHECK(plan.operands.gain.of(l) == memory.at<float>(op_of<LinearRope>(list, l).gain));
    Shape without = plan.operands.shape;
    without.head_norms = false;
    const Exchange exchange = exchange_of(plan.operands.shape, 132), other = exchange_of(without, 132);
    CHECK(exchange.squares == other.best);
    CHECK(exchange.newest == exchange.squares + 80);  // 3 x 24, rounded up to 16
    CHECK(exchange.best == exchange.newest + 3 * 2 * 2 * 64);
    CHECK(exchange.words == other.words + 80 + 3 * 2 * 2 * 64);

    const auto refusal = [&](const std::function<void(LinearRope&)>& change) {
        DecodeList changed(sizes);
        change(op_of<LinearRope>(changed, 1));
        return refusal_of(changed);
    };
    CHECK(refusal([](LinearRope&) {}) == "accepted");
    CHECK_THAT(refusal([](LinearRope& op) { op.eps = 1e-6; }), Contains("layer 1 qkv: eps of the norms of heads"));
    CHECK_THAT(refusal([](LinearRope& op) { op.queries = 128; }), Contains("layer 1 qkv: 128 columns"));
    CHECK_THAT(refusal([](LinearRope& op) { op.gain.cols = 32; }), Contains("layer 1 qkv") && Contains("gain"));
    CHECK_THAT(refusal([](LinearRope& op) { op.pre = op.out; }), Contains("layer 1 qkv") && Contains("pre"));
}

TEST_CASE("fused decode: sizes that the kernel does not take are refused by name") {
    CHECK(refusal_of(DecodeSizes{}) == "accepted");
    CHECK_THAT(refusal_of({.batch = 17}), Contains("17 sequences"));
    for (const std::int64_t batch : {2, 16})
        CHECK_THAT(refusal_of({.batch = batch, .rows_each = 2}),
                   Contains("layer 0 attention") && Contains(text(batch, " rows, 2 of each sequence, ")) &&
                       Contains("3 to 8"));
    CHECK_THAT(refusal_of({.batch = 6, .rows_each = 3}), Contains("3 of each sequence") && Contains("2, 4 or 8"));
    CHECK_THAT(refusal_of({.width = 72}), Contains("width is 72") && Contains("16"));
    CHECK_THAT(refusal_of({.feed_forward = 136}), Contains("feed-forward width is 136"));
    CHECK_THAT(refusal_of({.padded_vocab = 104}), Contains("vocabulary is 104"));
    CHECK_THAT(refusal_of({.heads = 18, .kv_heads = 2}), Contains("heads / kv_heads is 9"));
    CHECK_THAT(refusal_of({.head_dim = 32}), Contains("head_dim is 32"));
    CHECK(refusal_of({.heads = 16, .kv_heads = 2, .head_dim = 128}) == "accepted");
}

TEST_CASE("fused decode: a list of another form is refused, and the message says where") {
    CHECK_THAT(refusal_after([](DecodeList& list) { list.schedule.clear(); }), Contains("ChooseToken"));
    CHECK_THAT(refusal_after([](DecodeList& list) { list.schedule.pop_back(); }), Contains("end with ChooseToken"));
    CHECK_THAT(refusal_after([](DecodeList& list) { std::swap(list.schedule[2], list.schedule[3]); }),
               Contains("step 2") && Contains("layer 0 attn_out") && Contains("expected DecodeAttention"));
    CHECK_THAT(refusal_after([](DecodeList& list) {
                   op_of<LinearResidualRms>(list, 1).residual = op_of<LinearResidualRms>(list, 0).residual;
               }),
               Contains("layer 0 down") && Contains("residual"));
    CHECK_THAT(refusal_after([](DecodeList& list) { op_of<LinearSwiglu>(list).rstd = op_of<Embed>(list).rstd; }),
               Contains("layer 0 gate_up") && Contains("rstd"));
    CHECK_THAT(refusal_after([](DecodeList& list) { op_of<FinishRstd>(list, 2).eps = 1e-6; }), Contains("eps"));
    CHECK_THAT(refusal_after([](DecodeList& list) { op_of<LinearRope>(list, 1).bias = op_of<Embed>(list).rstd; }),
               Contains("layer 1 qkv: operand bias is there, and layer 0 has none"));
    CHECK_THAT(refusal_after([](DecodeList& list) { op_of<LinearRope>(list, 1).gain = op_of<Embed>(list).rstd; }),
               Contains("layer 1 qkv: operand gain is there, and layer 0 has none"));
    CHECK_THAT(refusal_after([](DecodeList& list) { op_of<DecodeAttention>(list, 1).window = 3; }),
               Contains("layer 1 attention: heads, context or window differ from layer 0"));
    CHECK_THAT(
        refusal_after([](DecodeList& list) { op_of<LinearResidualRms>(list, 2).bias = op_of<Embed>(list).rstd; }),
        Contains("layer 1 attn_out: operand bias is there, and layer 0 has none"));
    CHECK_THAT(
        refusal_after([](DecodeList& list) { op_of<LinearResidualRms>(list, 1).bias = op_of<Embed>(list).rstd; }),
        Contains("layer 0 down: model.mlp_bias is true"));
    CHECK_THAT(refusal_after([](DecodeList& list) {
                   for (Step& step : list.schedule)
                       if (step.name == "gate_up") step.op = LinearGelu{};
               }),
               Contains("layer 0: model.mlp is GELU, and the fused kernel has SwiGLU"));
    CHECK_THAT(refusal_after([](DecodeList& list) { op_of<LinearRope>(list, 1).rope.buffer = list.keys[0].buffer; }),
               Contains("layer 1 qkv") && Contains("angles"));
    CHECK_THAT(refusal_after([](DecodeList& list) { op_of<Linear>(list).out.beta = Beta::accumulate; }),
               Contains("overwrite"));
    CHECK_THAT(refusal_after([](DecodeList& list) { op_of<ChooseToken>(list).lengths = list.positions; }),
               Contains("lengths"));
    CHECK_THAT(refusal_after([](DecodeList& list) { op_of<Embed>(list).tokens = list.positions; }), Contains("token"));
    CHECK_THAT(refusal_after([](DecodeList& list) { op_of<Embed>(list).position_table = op_of<Embed>(list).table; }),
               Contains("model.position_embeddings is \"learned\""));
    CHECK_THAT(refusal_after([](DecodeList& list) { op_of<Embed>(list).centred = true; }),
               Contains("model.norm is \"layernorm\""));
}

TEST_CASE("fused decode: stages in flight on the GPUs that were measured") {
    constexpr double kH100 = 2.0 * 2619e6 * 5120 / 8, kH200 = 2.0 * 3201e6 * 6144 / 8;  // bytes per second
    const auto stages = [](int batch, bool int4, double bytes_per_s) {
        DecodePlan plan = plan_of(16, 2048, 8192, 32, 8, 64, batch);
        plan.operands.shape.int4 = int4;
        return layout_of(plan, fastest_in_flight(plan, bytes_per_s)).in_flight;
    };
    CHECK(stages(1, false, kH100) == 3);
    CHECK(stages(2, false, kH200) == 5);
    for (const int batch : {3, 16}) CHECK(stages(batch, false, kH200) == 3);
    CHECK(stages(1, true, kH200) == 3);
}

TEST_CASE("fused decode: every part of shared memory has room of its own") {
    for (const int batch : {1, 2, 3, 4, 5, 8, 9, 12, 16})
        for (const bool int4 : {false, true})
            for (DecodePlan plan :
                 {plan_of(16, 2048, 8192, 32, 8, 64, batch), plan_of(28, 3072, 8192, 24, 8, 128, batch),
                  plan_of(32, 4096, 14336, 32, 8, 128, batch), plan_of(1, 16, 16, 1, 1, 64, batch)}) {
                plan.operands.shape.int4 = int4;
                const Layout layout = layout_of(plan);
                CAPTURE(batch, int4, plan.operands.shape.width, layout.stages);
                std::vector<std::pair<int, int>> partials = {
                    {0, layout.stages * stage_bytes(plan.operands.shape.int4)},
                    {layout.input, kConsumerWarps * layout.input_bytes},
                    {layout.partials, 4 * layout.partial_entries * kConsumerWarps * layout.partial_floats},
                    {layout.ops, static_cast<int>(plan.ops.size() * sizeof(DecodeOp))},
                    {layout.state, static_cast<int>(sizeof(SharedState))}};
                for (std::size_t i = 0; i < partials.size(); ++i) {
                    CHECK(partials[i].first % 128 == 0);
                    const int end = i + 1 < partials.size() ? partials[i + 1].first : layout.bytes;
                    CHECK(partials[i].first + partials[i].second <= end);
                }
                CHECK(layout.bytes <= hopper::kMaxSharedBytes);
                CHECK(layout.stages >= 3);
                CHECK(layout.stages <= kMaxStages);
                CHECK(layout.in_flight >= 1);
                CHECK(layout.in_flight <= layout.stages);
                CHECK(layout.partial_entries <= kMaxPartialEntries);
                CHECK(layout.partial_entries % kEpilogueWarps == 0);  // an entry is always of the same epilogue warp
                CHECK(layout.input_bytes % 16 == 0);
                CHECK(layout.input_bytes >=
                      AttentionInput::bytes(plan.operands.shape.group(), plan.operands.shape.head_dim, false));
            }
    const Layout layout = layout_of(plan_of(16, 2048, 8192, 32, 8, 64, 1));
    CHECK(layout.stages >= 12);
    DecodePlan deep = plan_of(80, 4096, 14336, 32, 8, 128, 16);
    deep.operands.shape.int4 = true;
    CHECK(layout_of(deep).partial_entries == 2);  // or three stages would not fit
    CHECK(layout_of(deep).stages == 3);
    std::string message = "accepted";
    try {
        layout_of(plan_of(900, 2048, 8192, 32, 8, 64, 16));
    } catch (const Error& error) {
        message = error.what();
    }
    CHECK_THAT(message, Contains("4502 ops") && Contains("use fewer sequences"));
}

TEST_CASE("fused decode: vectors of the exchange do not overlap") {
    for (const int batch : {1, 3, 8, 16}) {
        const DecodePlan plan = plan_of(16, 2048, 8192, 32, 8, 64, batch);
        const Shape& shape = plan.operands.shape;
        const Exchange exchange = exchange_of(shape, 132);
        std::vector<std::pair<std::int64_t, std::int64_t>> vectors = {
            {exchange.qkv, batch * 3072 / 2},
            {exchange.o, batch * 2048 / 2},
            {exchange.middle, batch * 2048 / 2},
            {exchange.y, batch * 8192 / 2},
            {exchange.x, batch * 2048 / 2},
            {exchange.splits, std::int64_t{batch} * 32 * 16 * 66},
            {exchange.best, std::int64_t{132} * 2 * batch * 4},
            {exchange.token, batch + 1}};
        const std::int64_t lamport = (batch > 8 ? 2 : 1) * 8 * 512 * 2 / 8;  // 512 columns of 8 sequences each
        if (uses_lamport(batch))
            vectors.insert(vectors.end(), {{exchange.o_lamport, 4 * lamport},
                                           {exchange.middle_lamport, 4 * lamport},
                                           {exchange.y_lamport, 16 * lamport},
                                           {exchange.x_lamport, (4 + 2 * 28) * lamport},  // and two more copies of all
                                           {exchange.arrivals, 132}});
        for (std::size_t i = 0; i < std::size(vectors); ++i) {
            CHECK(vectors[i].first % 2 == 0);
            CHECK(vectors[i].first + vectors[i].second <=
                  (i + 1 < std::size(vectors) ? vectors[i + 1].first : exchange.words));
        }
    }
}
