// AttentionBackward - gradients of Attention, with the probabilities recomputed from lse.
//
// Per query tile and key tile: P = exp(Q Kᵀ / sqrt(hd) - lse), dP = dO Vᵀ, dS = P (dP - delta) / sqrt(hd), then
// dQ += dS K, dK += dSᵀ Q, dV += Pᵀ dO. dK and dV of a key/value head add up over its query heads, in their order.
#include <cmath>

#include "kernels/cpu/execute.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/math/rope.h"
#include "kernels/ops/attention/cpu_codes.h"
#include "kernels/ops/attention/cpu_math.h"
#include "kernels/ops/attention/op.h"

namespace coda::cpu {
namespace {

template <class Compute>
struct BackwardBuffers {
    explicit BackwardBuffers(const AttentionShape& shape)
        : width(round_up(shape.head_dim, kColumnBlock<Compute>)), keys_padded(round_up(shape.seq_len, kKeyTile)) {
        const auto transposed = static_cast<std::size_t>(keys_padded * shape.head_dim);
        const auto whole = static_cast<std::size_t>(keys_padded * width);
        const auto tile = static_cast<std::size_t>(kQueryTile * width);
        const auto square = static_cast<std::size_t>(kQueryTile * kKeyTile);
        keys_transposed.resize(transposed);
        values_transposed.resize(transposed);
        keys.resize(whole);
        dkeys.resize(whole);
        dvalues.resize(whole);
        query.resize(tile);
        dout.resize(tile);
        dquery.resize(tile);
        probabilities.resize(square);
        dscores.resize(square);
    }

    std::int64_t width;        // head_dim padded for multiply_add
    std::int64_t keys_padded;  // seq_len padded to whole key tiles
    std::vector<Compute> keys_transposed, values_transposed, keys, dkeys, dvalues;
    std::vector<Compute> query, dout, dquery, probabilities, dscores;
};

/// Turns one row of Q Kᵀ and of dO Vᵀ, in place, into p = exp(score scale - lse) and ds = p (dp - delta) scale. Columns
/// outside the visible [first, last) become 0.
template <class Compute>
void softmax_backward_row(Compute* scores, Compute* dprobabilities, std::int64_t first, std::int64_t last,
                          Compute scale, Compute lse, Compute delta) {
#pragma omp simd
    for (std::int64_t j = 0; j < kKeyTile; ++j) {
        const Compute p = exponential(scores[j] * scale - lse);
        dprobabilities[j] = p * (dprobabilities[j] - delta) * scale;
        scores[j] = p;
    }
    for (Compute* row : {scores, dprobabilities}) {
        std::fill(row, row + first, Compute(0));
        std::fill(row + last, row + kKeyTile, Compute(0));
    }
}

/// dqkv in storage.
template <class Storage, class Compute>
struct StoredGradient {
    Rows<Storage> rows;
    void put(std::int64_t row, std::int64_t column, Compute value) const {
        rows[row][column] = static_cast<Storage>(value);
    }
};

template <class Types, class Gradient>
struct Backward {
    using Storage = typename Types::Storage;
    using Compute = typename Types::Compute;

    AttentionShape shape;
    const Storage* qkv;
    std::int64_t qkv_ld;
    const Storage* dout;
    std::int64_t dout_ld;
    const Compute* lse;  // (H, M)
    std::int64_t lse_ld;
    const std::int32_t* doc_start;
    Gradient dqkv;
    // Either delta (H, M) is given, or o is, and delta = Σ_head o ⊙ dout.
    const Storage* o = nullptr;
    std::int64_t o_ld = 0;
    const Compute* delta = nullptr;
    std::int64_t delta_ld = 0;
    // With dot: dot (H + 2 Hk, M) is written.
    Compute* dot = nullptr;
    std::int64_t dot_ld = 0;
    const Compute* rstd = nullptr;  // (M), one factor per row
    // With rope: rows of q and k are rotated back.
    const std::int32_t* positions = nullptr;
    const Compute* rope = nullptr;
    std::int64_t rope_ld = 0;
    // With gain: rows of q and k are taken back through their norm, and dgain is written.
    Rows<const Compute> gain{}, rho{};
    Rows<const Storage> pre{};
    Rows<Compute> dgain{};
    Compute eps = 0;
    // With bias: its share is left out of dot, and dbias is written.
    const Compute* bias = nullptr;  // (Nq)
    Rows<Compute> dbias{};

    const Storage* head(std::int64_t row, std::int64_t slot) const {
        return qkv + row * qkv_ld + slot * shape.head_dim;
    }

    Compute delta_of(std::int64_t h, std::int64_t m) const {
        if (delta) return delta[h * delta_ld + m];
        const Storage* out = o + m * o_ld + h * shape.head_dim;
        const Storage* gradient = dout + m * dout_ld + h * shape.head_dim;
        Compute sum = 0;
        for (std::int64_t j = 0; j < shape.head_dim; ++j)
            sum += static_cast<Compute>(out[j]) * static_cast<Compute>(gradient[j]);
        return sum;
    }

    void unrotate(std::int64_t m, Compute* gradient) const {
        const Compute* angle = rope + positions[m] * rope_ld;
        for (std::int64_t j = 0; j < shape.head_dim; j += 2) {
            const auto turned = unrotate_pair(Pair<Compute>{gradient[j], gradient[j + 1]}, angle[j], angle[j + 1]);
            gradient[j] = turned.first;
            gradient[j + 1] = turned.second;
        }
    }

    /// Back through the norm of a q or k head, in place. A task visits the rows of a head in their order.
    void through_norm(std::int64_t m, std::int64_t slot, Compute* gradient) const {
        const std::int64_t width = shape.head_dim, t = m % shape.seq_len, b = m / shape.seq_len;
        constexpr std::int64_t kTile = AttentionBackward::kSumRows;
        const std::int64_t tile = (slot * shape.batch() + b) * ceil_div(shape.seq_len, kTile) + t / kTile;
        const Storage* z = pre[m] + slot * width;
        const Compute* weight = gain[slot < shape.heads ? 0 : 1];
        const Compute factor = rho[slot][m], row = rstd ? rstd[m] : Compute(1);
        Compute* sums = dgain[tile];
        if (t % kTile == 0) std::fill_n(sums, width, Compute(0));
        Compute sum = 0;  // hd c
        for (std::int64_t j = 0; j < width; ++j) {
            const Compute normed = factor * static_cast<Compute>(z[j]);
            sum += weight[j] * normed * gradient[j];
            sums[j] += normed * gradient[j];
        }
        const Compute c = sum / static_cast<Compute>(width);
        for (std::int64_t j = 0; j < width; ++j)
            gradient[j] = row * factor * (weight[j] * gradient[j] - c * (factor * static_cast<Compute>(z[j])));
        dot[slot * dot_ld + m] = row * eps * factor * factor * sum;
    }

    /// Leaves the bias out of a finished row's dot, and adds the row without rstd to the sums of its tile. A task
    /// visits the rows of a head in their order.
    void through_bias(std::int64_t m, std::int64_t slot, const Compute* gradient) const {
        constexpr std::int64_t kTile = AttentionBackward::kSumRows;
        const std::int64_t width = shape.head_dim, t = m % shape.seq_len, b = m / shape.seq_len;
        Compute* sums = dbias[b * ceil_div(shape.seq_len, kTile) + t / kTile] + slot * width;
        if (t % kTile == 0) std::fill_n(sums, width, Compute(0));
        const Compute over = rstd ? 1 / rstd[m] : Compute(1);
        Compute share = 0;
        for (std::int64_t j = 0; j < width; ++j) {
            share += bias[slot * width + j] * gradient[j];
            sums[j] += gradient[j] * over;
        }
        dot[slot * dot_ld + m] -= share;
    }

    /// Stores the finished gradient of one head slot of row m. Overwrites `gradient`.
    void store(std::int64_t m, std::int64_t slot, Compute* gradient) const {
        const bool rotated = rope && slot < shape.heads + shape.kv_heads;
        if (gain && rotated) {
            unrotate(m, gradient);
            through_norm(m, slot, gradient);
        } else {
            if (rstd)
                for (std::int64_t j = 0; j < shape.head_dim; ++j) gradient[j] *= rstd[m];
            if (dot) {
                const Storage* value = head(m, slot);
                Compute sum = 0;
                for (std::int64_t j = 0; j < shape.head_dim; ++j) sum += static_cast<Compute>(value[j]) * gradient[j];
                dot[slot * dot_ld + m] = sum;
            }
            if (rotated) unrotate(m, gradient);
            if (bias) through_bias(m, slot, gradient);
        }
        for (std::int64_t j = 0; j < shape.head_dim; ++j) dqkv.put(m, slot * shape.head_dim + j, gradient[j]);
    }

    void kv_head(std::int64_t sequence, std::int64_t kv, BackwardBuffers<Compute>& buffers) const {
        const std::int64_t row = sequence * shape.seq_len;
        const Storage* keys = head(row, shape.key_slot(kv));
        pack_transposed(keys, qkv_ld, shape.seq_len, shape.head_dim, buffers.keys_transposed.data());
        pack_transposed(head(row, shape.value_slot(kv)), qkv_ld, shape.seq_len, shape.head_dim,
                        buffers.values_transposed.data());
        pack(keys, qkv_ld, shape.seq_len, shape.head_dim, buffers.keys_padded, buffers.width, buffers.keys.data());
        std::fill(buffers.dkeys.begin(), buffers.dkeys.end(), Compute(0));
        std::fill(buffers.dvalues.begin(), buffers.dvalues.end(), Compute(0));

        for (std::int64_t h = kv * shape.group(); h < (kv + 1) * shape.group(); ++h)
            for (std::int64_t first = 0; first < shape.seq_len; first += kQueryTile)
                query_tile(row, h, first, std::min(first + kQueryTile, shape.seq_len), buffers);

        for (std::int64_t t = 0; t < shape.seq_len; ++t) {
            store(row + t, shape.key_slot(kv), buffers.dkeys.data() + t * buffers.width);
            store(row + t, shape.value_slot(kv), buffers.dvalues.data() + t * buffers.width);
        }
    }

    /// Computes dq of queries [first, last) of head h in the sequence that starts at `row`, and adds their share of dk
    /// and dv.
    void query_tile(std::int64_t row, std::int64_t h, std::int64_t first, std::int64_t last,
                    BackwardBuffers<Compute>& buffers) const {
        const std::int64_t queries = last - first;
        const std::int64_t padded = round_up(queries, kRowBlock);
        const std::int64_t width = buffers.width;
        const auto scale = static_cast<Compute>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
        const std::int32_t* starts = doc_start ? doc_start + row : nullptr;
        Compute* scores = buffers.probabilities.data();
        Compute* dscores = buffers.dscores.data();
        const Compute* query = buffers.query.data();
        const Compute* dout_tile = buffers.dout.data();

        pack(head(row + first, h), qkv_ld, queries, shape.head_dim, padded, width, buffers.query.data());
        pack(dout + (row + first) * dout_ld + h * shape.head_dim, dout_ld, queries, shape.head_dim, padded, width,
             buffers.dout.data());
        std::fill(buffers.dquery.begin(), buffers.dquery.end(), Compute(0));
        Compute deltas[kQueryTile];
        for (std::int64_t i = 0; i < queries; ++i) deltas[i] = delta_of(h, row + first + i);

        for (std::int64_t tile = first_key_tile(starts, first, last); tile * kKeyTile < last; ++tile) {
            const std::int64_t key = tile * kKeyTile;
            std::fill(buffers.probabilities.begin(), buffers.probabilities.end(), Compute(0));
            std::fill(buffers.dscores.begin(), buffers.dscores.end(), Compute(0));
            multiply_add(padded, kKeyTile, shape.head_dim, LeftOperand<Compute>{query, width, 1},
                         buffers.keys_transposed.data() + key * shape.head_dim, kKeyTile, scores, kKeyTile);
            multiply_add(padded, kKeyTile, shape.head_dim, LeftOperand<Compute>{dout_tile, width, 1},
                         buffers.values_transposed.data() + key * shape.head_dim, kKeyTile, dscores, kKeyTile);
            for (std::int64_t i = 0; i < queries; ++i) {
                const KeyRange keys = visible_keys(starts, first + i);
                const std::int64_t from = std::clamp<std::int64_t>(keys.first - key, 0, kKeyTile);
                const std::int64_t to = std::clamp<std::int64_t>(keys.last - key, from, kKeyTile);
                softmax_backward_row(scores + i * kKeyTile, dscores + i * kKeyTile, from, to, scale,
                                     lse[h * lse_ld + row + first + i], deltas[i]);
            }
            multiply_add(padded, width, kKeyTile, LeftOperand<Compute>{dscores, kKeyTile, 1},
                         buffers.keys.data() + key * width, width, buffers.dquery.data(), width);
            multiply_add(kKeyTile, width, queries, LeftOperand<Compute>{dscores, 1, kKeyTile}, query, width,
                         buffers.dkeys.data() + key * width, width);
            multiply_add(kKeyTile, width, queries, LeftOperand<Compute>{scores, 1, kKeyTile}, dout_tile, width,
                         buffers.dvalues.data() + key * width, width);
        }
        for (std::int64_t i = 0; i < queries; ++i) store(row + first + i, h, buffers.dquery.data() + i * width);
    }

    void run() const {
        for_each_kv_head<BackwardBuffers<Compute>>(
            shape, [&](std::int64_t sequence, std::int64_t kv, auto& buffers) { kv_head(sequence, kv, buffers); });
    }
};

template <class Types, class Gradient>
void run(const AttentionBackward& op, const Operands& operands, const AttentionShape& shape, const Gradient& gradient) {
    using Storage = typename Types::Storage;
    using Compute = typename Types::Compute;
    Backward<Types, Gradient> backward{
        .shape = shape,
        .qkv = operands.get<Storage>("qkv", op.qkv, shape.rows, shape.columns()),
        .qkv_ld = op.qkv.ld,
        .dout = operands.get<Storage>("dout", op.dout, shape.rows, shape.heads * shape.head_dim),
        .dout_ld = op.dout.ld,
        .lse = operands.get<Compute>("lse", op.lse, shape.heads, shape.rows),
        .lse_ld = op.lse.ld,
        .doc_start = document_starts(operands, op.doc_start, shape),
        .dqkv = gradient,
        .o = operands.get_optional<Storage>("o", op.o, shape.rows, shape.heads * shape.head_dim),
        .o_ld = op.o.ld,
        .delta = operands.get_optional<Compute>("delta", op.delta, shape.heads, shape.rows),
        .delta_ld = op.delta.ld,
    };
    if (op.dot) {
        backward.dot = operands.get<Compute>("dot", op.dot, shape.head_slots(), shape.rows);
        backward.dot_ld = op.dot.ld;
        backward.rstd = operands.get_optional<Compute>("rstd", op.rstd, 1, shape.rows);
    }
    if (op.rope) {
        backward.positions = operands.get<std::int32_t>("positions", op.positions, 1, shape.rows);
        backward.rope = operands.get<Compute>("rope", op.rope, op.rope.rows, shape.head_dim);
        backward.rope_ld = op.rope.ld;
        operands.require_indices("positions", backward.positions, shape.rows, op.rope.rows);
    }
    if (op.gain) {
        const std::int64_t normed = shape.heads + shape.kv_heads, width = shape.head_dim;
        backward.gain = rows_of<const Compute>(operands, "gain", op.gain, 2, width);
        backward.pre = rows_of<const Storage>(operands, "pre", op.pre, shape.rows, normed * width);
        backward.rho = rows_of<const Compute>(operands, "rho", op.rho, normed, shape.rows);
        backward.dgain =
            rows_of<Compute>(operands, "dgain", op.dgain, normed * op.sum_tiles(shape.rows, shape.seq_len), width);
        backward.eps = static_cast<Compute>(op.eps);
    }
    if (op.bias) {
        backward.bias = operands.get<Compute>("bias", op.bias, 1, shape.columns());
        backward.dbias =
            rows_of<Compute>(operands, "dbias", op.dbias, op.sum_tiles(shape.rows, shape.seq_len), shape.columns());
    }
    backward.run();
}

}  // namespace

template <>
void execute(const AttentionBackward& op, const Memory& memory) {
    require_together(op);
    require(!op.rope || op.head_dim % 2 == 0, op.name, ": head_dim ", op.head_dim, " is odd");
    dispatch_storage(op.name, op.qkv.dtype, [&]<class Types>(Types) {
        using Storage = typename Types::Storage;
        using Compute = typename Types::Compute;
        const Operands operands(op.name, memory);
        const AttentionShape shape = attention_shape(op);
        if (!op.dqkv.codes) {
            run<Types>(op, operands, shape,
                       StoredGradient<Storage, Compute>{
                           rows_of<Storage>(operands, "dqkv", op.dqkv, shape.rows, shape.columns())});
            return;
        }
        require_codes(op.name, op.dqkv_names, op.dqkv.codes, DType::f8e5m2, shape.rows, shape.columns(),
                      dtype_of<Compute>, false);
        with_code_rows<F8E5M2, Storage, Compute>(op.dqkv.codes, memory,
                                                 [&](const auto& codes) { run<Types>(op, operands, shape, codes); });
    });
}

}  // namespace coda::cpu
