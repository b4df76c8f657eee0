// A small decode pass as an op list on host buffers: what hopper::decode::lower takes, and cpu::run executes.
#pragma once

#include <cmath>
#include <random>
#include <string>

#include "kernels/core/integers.h"
#include "kernels/cpu/run.h"
#include "kernels/math/int4.h"
#include "kernels/ops.h"
#include "tests/kernels/fixture.h"

namespace coda::test {

struct DecodeSizes {
    std::int64_t batch = 1, layers = 2, width = 80, feed_forward = 144;
    std::int64_t heads = 4, kv_heads = 2, head_dim = 64, context = 300;
    std::int64_t vocab = 101, padded_vocab = 112;
    bool int4 = false, int4_head = false;  // 4-bit integers: the layers' matrices with whole groups; the head
    bool norms = true;                     // these have the weights of norms before them, and scales with a mantissa
    std::int64_t window = 0;               // of positions that a token sees; 0: all
    bool bias = false, out_bias = false;   // of q, k and v; of attn_out
    bool head_norms = false;               // of q and k
    std::int64_t rows_each = 1;            // of a sequence: `batch` rows are of batch / rows_each sequences

    std::int64_t sequences() const { return batch / rows_each; }
    std::int64_t q_columns() const { return heads * head_dim; }
    std::int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// What a sequence starts with: tokens so far, the newest included; 0: idle.
struct DecodeRow {
    int length = 1;
    ChoiceOptions choice{};
    int limit = 1 << 20;
    int end_token = -1;
};

class DecodeList {
  public:
    DecodeSizes sizes;
    Buffers buffers;
    Schedule schedule;
    View token, lengths, positions, state, status, seen, logits;
    std::vector<View> keys, values;  // by layer

    explicit DecodeList(const DecodeSizes& given, float weight_scale = 0.15f) : sizes(given), scale_(weight_scale) {
        const std::int64_t batch = sizes.batch;
        token = ints(batch);
        lengths = ints(batch);
        positions = ints(batch);
        state = ints(batch);
        status = ints(batch);
        limits_ = ints(batch);
        ends_ = buffers.matrix(DType::i32, batch, 2);
        seen = buffers.matrix(DType::i32, batch, ceil_div(sizes.vocab, std::int64_t{32}));
        options_ = ints(ChooseToken::kOptionWords * batch);
        rope_ = buffers.matrix(DType::f32, sizes.context, sizes.head_dim);
        for (std::int64_t p = 0; p < sizes.context; ++p)
            for (std::int64_t i = 0; i < sizes.head_dim / 2; ++i) {
                const double angle = static_cast<double>(p) *
                                     std::pow(0.01, 2.0 * static_cast<double>(i) / static_cast<double>(sizes.head_dim));
                buffers.set(rope_, p, 2 * i, std::cos(angle));
                buffers.set(rope_, p, 2 * i + 1, std::sin(angle));
            }
        if (sizes.norms && (sizes.int4 || sizes.int4_head))
            norms_ = buffers.random(DType::f32, 1, (2 * sizes.layers + 1) * sizes.width, 0.5, 1.5);
        if (sizes.bias) biases_ = buffers.random(DType::f32, sizes.layers, sizes.qkv_columns());
        if (sizes.out_bias) out_biases_ = buffers.random(DType::f32, sizes.layers, sizes.width);
        if (sizes.head_norms) gains_ = buffers.random(DType::f32, 2 * sizes.layers, sizes.head_dim, 0.5, 1.5);
        build();
    }

    /// Unpacks the 4-bit integers here and now: what is left of the list reads the same matrices in bf16.
    void unpack() {
        std::erase_if(schedule, [&](const Step& step) {
            if (!std::holds_alternative<UnpackInt4>(step.op)) return false;
            cpu::run(step.op, buffers.memory());
            return true;
        });
    }

    void set_row(std::int64_t row, const DecodeRow& from, int newest) {
        buffers.set(lengths, 0, row, from.length);
        buffers.set(positions, 0, row, from.length > 0 ? from.length - 1 : 0);
        buffers.set(state, 0, row, static_cast<int>(from.length > 0 ? RowState::running : RowState::idle));
        buffers.set(status, 0, row, 0);
        buffers.set(token, 0, row, newest);
        buffers.set(limits_, 0, row, from.limit);
        buffers.set(ends_, row, 0, from.end_token);
        buffers.set(ends_, row, 1, -1);
        for (std::int64_t word = 0; word < seen.cols; ++word) buffers.set(seen, row, word, 0);
        auto* options = reinterpret_cast<ChoiceOptions*>(buffers.memory().at<std::int32_t>(options_));
        options[row] = from.choice;
    }
    /// Copies the caches of sequence `other_row` of another list into the caches of sequence `row`.
    void copy_caches(std::int64_t row, const DecodeList& other, std::int64_t other_row) {
        const std::int64_t rows = sizes.kv_heads * sizes.context;
        for (std::size_t l = 0; l < keys.size(); ++l)
            for (std::int64_t i = 0; i < rows; ++i)
                for (std::int64_t j = 0; j < sizes.head_dim; ++j) {
                    buffers.set(keys[l], row * rows + i, j, other.buffers.get(other.keys[l], other_row * rows + i, j));
                    buffers.set(values[l], row * rows + i, j,
                                other.buffers.get(other.values[l], other_row * rows + i, j));
                }
    }
    std::vector<View> views() const {
        std::vector<View> all;
        for (const Step& step : schedule)
            for_each_operand(step.op, [&](const char*, const View& view, Access) { all.push_back(view); });
        return all;
    }

  private:
    View ints(std::int64_t count) { return buffers.vector(DType::i32, count); }
    View weights(std::int64_t rows, std::int64_t cols) {
        return buffers.random(DType::bf16, rows, cols, -scale_, scale_);
    }
    /// The operand w of a GEMM, and the step that unpacks it. norm: the number of the norm before it; -1: none.
    View w(int layer, const char* name, std::int64_t rows, std::int64_t cols, std::int64_t norm = -1) {
        if (!(layer < 0 ? sizes.int4_head : sizes.int4) || cols % kInt4Group != 0) return weights(rows, cols);
        UnpackInt4 op;
        op.units = buffers.matrix(DType::i32, rows / kInt4Rows, cols / kInt4Group * kInt4UnitWords);
        auto* const words = buffers.memory().at<std::int32_t>(op.units);
        for (std::int64_t i = 0; i < op.units.count(); ++i) words[i] = static_cast<std::int32_t>(random_());
        // Powers of two where there are no norms: then the matrix in bf16 has the same numbers.
        const auto scale = [&] {
            const float some = scale_ / 8 * (0.5f + 1e-3f * static_cast<float>(random_() % 1000));
            return std::uint32_t{Bf16(sizes.norms ? some : std::exp2(std::floor(std::log2(some)))).bits};
        };
        for (std::int64_t i = 0; i < op.units.count(); i += kInt4UnitWords)
            for (std::int64_t j = kInt4CodeWords; j < kInt4UnitWords; ++j)
                words[i + j] = static_cast<std::int32_t>(scale() | scale() << 16 | (random_() & 0x80008000u));
        if (norms_ && norm >= 0) {
            View gamma = norms_;
            gamma.offset += norm * sizes.width * size_of(gamma.dtype);
            gamma.cols = gamma.ld = sizes.width;
            op.gamma = gamma;
        }
        op.working = buffers.matrix(DType::bf16, rows, cols);
        written(op.working);
        const View working = op.working;
        add(layer, name, op);
        return working;
    }
    View activation(std::int64_t cols) { return buffers.matrix(DType::bf16, sizes.batch, cols); }
    View statistic(std::int64_t rows = 1) { return buffers.matrix(DType::f32, rows, sizes.batch); }
    static View written(View& view) {
        ++view.version;
        return view;
    }
    void add(int layer, const char* name, Op op) { schedule.push_back({Phase::forward, layer, name, std::move(op)}); }

    void build() {
        constexpr double kEps = 1e-5;
        const std::int64_t d = sizes.width, f = sizes.feed_forward;
        View x = activation(d), rstd = statistic();
        add(-1, "embedding",
            Embed{.tokens = token,
                  .table = buffers.random(DType::bf16, sizes.vocab, d, -1, 1),
                  .positions = {},
                  .position_table = {},
                  .x = x,
                  .rstd = rstd,
                  .eps = kEps});
        const auto close = [&](int layer, const char* name, const View& a, std::int64_t k, const View& bias) {
            const View matrix = w(layer, "weights", d, k);
            const std::int64_t tile = LinearResidualRms::tile_columns(d, static_cast<bool>(bias));
            const View next = activation(d), square = statistic(ceil_div(d, tile)), next_rstd = statistic();
            add(layer, name,
                LinearResidualRms{
                    .a = a, .w = matrix, .bias = bias, .residual = x, .x = next, .square = square, .tile = tile});
            add(layer, "rstd", FinishRstd{.square = square, .rstd = next_rstd, .width = d, .eps = kEps});
            x = next;
            rstd = next_rstd;
        };
        for (int l = 0; l < static_cast<int>(sizes.layers); ++l) {
            const View qkv = activation(sizes.qkv_columns()), o = activation(sizes.q_columns()), y = activation(f);
            const std::int64_t rows = sizes.sequences() * sizes.kv_heads * sizes.context;
            keys.push_back(buffers.random(DType::bf16, rows, sizes.head_dim, -1, 1));
            values.push_back(buffers.random(DType::bf16, rows, sizes.head_dim, -1, 1));
            const View qkv_weights = w(l, "qkv_weights", sizes.qkv_columns(), d, 2 * l);
            add(l, "qkv",
                LinearRope{.a = x,
                           .w = qkv_weights,
                           .rstd = rstd,
                           .bias = biases_ ? biases_.row_slice(l, 1) : View{},
                           .gain = gains_ ? gains_.row_slice(2 * l, 2) : View{},
                           .positions = positions,
                           .rope = rope_,
                           .out = qkv,
                           .pre = {},
                           .rho = {},
                           .rotated = (sizes.heads + sizes.kv_heads) * sizes.head_dim,
                           .head_dim = sizes.head_dim,
                           .queries = sizes.q_columns(),
                           .eps = kEps});
            DecodeAttention attention{.qkv = qkv,
                                      .lengths = lengths,
                                      .keys = keys.back(),
                                      .values = values.back(),
                                      .o = o,
                                      .scratch = {},
                                      .context = sizes.context,
                                      .heads = sizes.heads,
                                      .kv_heads = sizes.kv_heads,
                                      .head_dim = sizes.head_dim,
                                      .window = sizes.window,
                                      .rows_each = sizes.rows_each};
            attention.scratch = buffers.vector(DType::u8, attention.scratch_bytes());
            add(l, "attention", attention);
            close(l, "attn_out", o, sizes.q_columns(), out_biases_ ? out_biases_.row_slice(l, 1) : View{});
            const View gate_up_weights = w(l, "gate_up_weights", 2 * f, d, 2 * l + 1);
            add(l, "gate_up", LinearSwiglu{.a = x, .w = gate_up_weights, .rstd = rstd, .z = {}, .y = y});
            close(l, "down", y, f, {});
        }
        View all = activation(sizes.padded_vocab);
        const View head = w(-1, "head_weights", sizes.padded_vocab, d, 2 * sizes.layers);
        add(-1, "logits", Linear{.a = x, .w = head, .rstd = rstd, .out = {all, Beta::overwrite}});
        all.cols = sizes.vocab;
        logits = all;
        add(-1, "choose",
            ChooseToken{.options = options_,
                        .logits = logits,
                        .end_tokens = ends_,
                        .limits = limits_,
                        .seen = seen,
                        .lengths = lengths,
                        .positions = positions,
                        .state = state,
                        .token = token,
                        .status = status});
    }

    float scale_;
    std::mt19937 random_;
    View norms_, biases_, out_biases_, gains_, limits_, ends_, options_, rope_;
};

}  // namespace coda::test
