// Attention with codes of o, and AttentionBackward with codes of dqkv, on a Hopper GPU against the same kernels with
// the matrix in bf16, and QuantiseF8 after them: the same bits, of all other results too.
#include "tests/hopper/gpu_copy.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr double kAmax = 0x1p-20;  // before a run

enum class Adds { nothing, rope, norm, bias };

struct Shape {
    std::int64_t batch, seq_len, heads, kv_heads, head_dim;
    bool documents;
    Adds adds;
    std::int64_t gap;
    double scale = 16;

    std::int64_t rows() const { return batch * seq_len; }
    std::int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

Rounded codes(Buffers& buffers, const Shape& shape, DType format, std::int64_t columns) {
    Rounded made;
    made.scale = buffers.scalar(DType::f32, shape.scale);
    made.rows = buffers.matrix(format, shape.rows(), columns, columns + shape.gap);
    made.columns = buffers.matrix(format, columns, shape.rows(), shape.rows() + shape.gap);
    made.columns.order = ColumnOrder::paired;
    made.amax = buffers.scalar(DType::f32, kAmax);
    return made;
}

/// Any contents of lse and delta belong to some logits.
AttentionBackward inputs(Buffers& buffers, const Shape& shape) {
    const std::int64_t rows = shape.rows(), normed = shape.heads + shape.kv_heads, hd = shape.head_dim;
    AttentionBackward op;
    op.qkv = buffers.random(DType::bf16, rows, shape.columns(), -1, 1);
    op.dout = buffers.random(DType::bf16, rows, shape.heads * hd, -1, 1);
    op.lse = buffers.random(DType::f32, shape.heads, rows, 2, 6);
    op.delta = buffers.random(DType::f32, shape.heads, rows, -1, 1);
    std::vector<int> positions, starts;
    for (std::int64_t m = 0; m < rows; ++m) {
        positions.push_back(static_cast<int>(m * 7919 % shape.seq_len));
        starts.push_back(static_cast<int>(m % shape.seq_len / 150 * 150));
    }
    if (shape.documents) op.doc_start = buffers.indices(starts);
    if (shape.adds != Adds::nothing) {
        op.positions = buffers.indices(positions);
        op.rope = buffers.random(DType::f32, shape.seq_len, hd, -1, 1);
        op.rstd = buffers.random(DType::f32, 1, rows, 0.5, 2);
    }
    if (shape.adds == Adds::norm) {
        op.gain = buffers.random(DType::f32, 2, hd, 0.5, 2);
        op.pre = buffers.random(DType::bf16, rows, normed * hd, -1, 1);
        op.rho = buffers.random(DType::f32, normed, rows, 0.5, 2);
        op.eps = 0.25;
    }
    if (shape.adds == Adds::bias) op.bias = buffers.random(DType::f32, 1, shape.columns(), -1, 1);
    op.seq_len = shape.seq_len;
    op.heads = shape.heads;
    op.kv_heads = shape.kv_heads;
    op.head_dim = hd;
    return op;
}

void add_outputs(AttentionBackward& op, Buffers& buffers, const Shape& shape) {
    const std::int64_t rows = shape.rows(), normed = shape.heads + shape.kv_heads;
    const std::int64_t tiles = AttentionBackward::sum_tiles(rows, shape.seq_len);
    if (shape.adds != Adds::nothing) op.dot = buffers.matrix(DType::f32, normed + shape.kv_heads, rows);
    if (shape.adds == Adds::norm) op.dgain = buffers.matrix(DType::f32, normed * tiles, shape.head_dim);
    if (shape.adds == Adds::bias) op.dbias = buffers.matrix(DType::f32, tiles, shape.columns());
    op.scratch = buffers.matrix(DType::u8, 1, op.scratch_bytes());
}

void require_same(const Buffers& buffers, std::initializer_list<std::tuple<const char*, View, View>> pairs) {
    for (const auto& [name, a, b] : pairs) {
        INFO(name);
        if (a) CHECK((buffers.bits(a) == buffers.bits(b)));
    }
}

/// So that a run cannot leave results to the next one.
void forget(Buffers& buffers, std::initializer_list<View> results, const Rounded& codes) {
    for (const View& result : results) buffers.poison(result);
    buffers.set(codes.amax, 0, 0, kAmax);
}

void check_forward(const Shape& shape) {
    Buffers buffers;
    const std::int64_t width = shape.heads * shape.head_dim;
    const AttentionBackward same = inputs(buffers, shape);
    Attention stored;
    stored.qkv = same.qkv;
    stored.doc_start = same.doc_start;
    stored.seq_len = shape.seq_len;
    stored.heads = shape.heads;
    stored.kv_heads = shape.kv_heads;
    stored.head_dim = shape.head_dim;
    Attention rounded = stored;
    for (Attention* op : {&stored, &rounded}) {
        op->o = buffers.matrix(DType::bf16, shape.rows(), width);
        op->lse = buffers.matrix(DType::f32, shape.heads, shape.rows());
        op->next_tile = buffers.indices({0});
    }
    rounded.o_codes = codes(buffers, shape, DType::f8e4m3, width);
    const QuantiseF8 quantise{.x = stored.o, .rstd = {}, .codes = codes(buffers, shape, DType::f8e4m3, width)};
    run_on_gpu(stored, buffers);
    run_on_gpu(quantise, buffers);
    for (int run = 0; run < 2; ++run) {
        if (run == 1) rounded.o_codes.columns = {};
        forget(buffers, {rounded.o, rounded.lse, rounded.o_codes.rows}, rounded.o_codes);
        run_on_gpu(rounded, buffers);
        require_same(buffers, {{"o", rounded.o, stored.o},
                               {"lse", rounded.lse, stored.lse},
                               {"rows", rounded.o_codes.rows, quantise.codes.rows},
                               {"columns", rounded.o_codes.columns, quantise.codes.columns},
                               {"amax", rounded.o_codes.amax, quantise.codes.amax}});
        CHECK(buffers.gaps_untouched(rounded.o_codes.rows));
    }
}

void check_backward(const Shape& shape) {
    Buffers buffers;
    AttentionBackward stored = inputs(buffers, shape), rounded = stored;
    stored.dqkv = buffers.matrix(DType::bf16, shape.rows(), shape.columns());
    rounded.dqkv = codes(buffers, shape, DType::f8e5m2, shape.columns());
    add_outputs(stored, buffers, shape);
    add_outputs(rounded, buffers, shape);
    const QuantiseF8 quantise{
        .x = stored.dqkv, .rstd = {}, .codes = codes(buffers, shape, DType::f8e5m2, shape.columns())};
    run_on_gpu(stored, buffers);
    run_on_gpu(quantise, buffers);
    const Rounded &got = rounded.dqkv.codes, &expected = quantise.codes;
    for (int run = 0; run < 2; ++run) {
        forget(buffers, {got.rows, got.columns}, got);
        run_on_gpu(rounded, buffers);
        require_same(buffers, {{"rows", got.rows, expected.rows},
                               {"columns", got.columns, expected.columns},
                               {"amax", got.amax, expected.amax},
                               {"dot", rounded.dot, stored.dot},
                               {"dgain", rounded.dgain, stored.dgain},
                               {"dbias", rounded.dbias, stored.dbias}});
        CHECK(buffers.gaps_untouched(got.rows));
        CHECK(buffers.gaps_untouched(got.columns));
    }
}

void check(const Shape& shape) {
    INFO("B " << shape.batch << " T " << shape.seq_len << " H " << shape.heads << " Hk " << shape.kv_heads << " hd "
              << shape.head_dim << (shape.documents ? " documents" : "") << " adds " << static_cast<int>(shape.adds)
              << " gap " << shape.gap << " scale " << shape.scale);
    if (shape.adds == Adds::nothing) check_forward(shape);
    check_backward(shape);
}

}  // namespace

// Sequences of whole and of broken groups of 16 tokens, of less than a tile and of several.
TEST_CASE("attention's codes have the bits of QuantiseF8's", "[gpu][attention][f8]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const Adds adds : {Adds::nothing, Adds::rope, Adds::norm, Adds::bias})
            for (const bool documents : {false, true})
                for (const auto& [batch, seq_len] :
                     {std::pair{16, 1}, {16, 17}, {2, 128}, {16, 129}, {4, 300}, {2, 1000}})
                    check({batch, seq_len, 4, 2, head_dim, documents, adds, documents ? 16 : 0});
}

// A block of the forward kernel has several tiles. Some are so short that they end while the codes of the last tile are
// still being stored.
TEST_CASE("attention's codes have the bits of QuantiseF8's where blocks take many tiles", "[gpu][attention][f8]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const bool documents : {false, true})
            for (const auto& [batch, seq_len, heads, kv_heads] :
                 {std::tuple{8, 1000, 16, 1}, {512, 16, 4, 2}, {256, 72, 4, 2}})
                check({batch, seq_len, heads, kv_heads, head_dim, documents, Adds::nothing, 0});
}

// Attention multiplies by the scale in bf16, QuantiseF8 in fp32.
TEST_CASE("attention's codes have the bits of QuantiseF8's at scales that clip them or make them 0",
          "[gpu][attention][f8]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const double scale : {0x1p-40, 0x1p-8, 0x1p12, 0x1p40})
            for (const Adds adds : {Adds::nothing, Adds::rope}) check({4, 300, 4, 2, head_dim, false, adds, 0, scale});
}

TEST_CASE("the GPU refuses codes of attention as the CPU does", "[gpu][attention][f8]") {
    if (!has_hopper()) return;
    const Shape shape{2, 128, 4, 2, 64, false, Adds::nothing, 0};
    Buffers buffers;
    AttentionBackward op = inputs(buffers, shape);
    op.dqkv = codes(buffers, shape, DType::f8e5m2, shape.columns());
    add_outputs(op, buffers, shape);
    CHECK(refusal(op, buffers) == "accepted");
    const auto refused = [&](const char* expected, void (*change)(Rounded&)) {
        AttentionBackward changed = op;
        change(changed.dqkv.codes);
        CHECK(refusal(changed, buffers) == expected);
    };
    refused("AttentionBackward: operand dqkv_amax is missing", [](Rounded& codes) { codes.amax = {}; });
    refused("AttentionBackward: operand dqkv_t is missing", [](Rounded& codes) { codes.columns = {}; });
    refused("AttentionBackward: operand dqkv is f8e4m3, expected f8e5m2",
            [](Rounded& codes) { codes.rows.dtype = DType::f8e4m3; });
    refused(
        "AttentionBackward: operand dqkv_t has its columns in natural order, expected pairs of each 16, as in a "
        "transposed FP8 copy",
        [](Rounded& codes) { codes.columns.order = ColumnOrder::natural; });
}

TEST_CASE("attention's codes, of more sequences than a grid has along z", "[gpu][attention][f8]") {
    if (!has_hopper()) return;
    check({65536 + 3000, 2, 1, 1, 64, false, Adds::rope, 0});
}
