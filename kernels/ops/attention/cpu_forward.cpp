// Attention - causal grouped-query attention with an online softmax.
//
// Each query tile takes the keys tile by tile: S = Q Kᵀ / sqrt(hd), masked; m is the running row maximum, l the running
// Σ exp(S - m); O = exp(m_old - m) O + exp(S - m) V. At the end o = O / l and lse = m + log l. Subtracting the maximum
// keeps every exponent at or below 0, so logits of any size are safe.
#include <cmath>

#include "kernels/cpu/execute.h"
#include "kernels/cpu/exponential.h"
#include "kernels/ops/attention/cpu_codes.h"
#include "kernels/ops/attention/cpu_math.h"
#include "kernels/ops/attention/op.h"

namespace coda::cpu {
namespace {

template <class Compute>
struct ForwardBuffers {
    explicit ForwardBuffers(const AttentionShape& shape)
        : width(round_up(shape.head_dim, kColumnBlock<Compute>)),
          keys_transposed(static_cast<std::size_t>(round_up(shape.seq_len, kKeyTile) * shape.head_dim)),
          values(static_cast<std::size_t>(round_up(shape.seq_len, kKeyTile) * width)),
          query(static_cast<std::size_t>(kQueryTile * width)),
          output(static_cast<std::size_t>(kQueryTile * width)),
          scores(static_cast<std::size_t>(kQueryTile * kKeyTile)) {}

    std::int64_t width;  // head_dim padded for multiply_add
    std::vector<Compute> keys_transposed, values, query, output, scores;
};

/// Replaces one row of scores by exp(score scale - maximum) over the visible columns [first, last) and by 0 elsewhere,
/// and updates the maximum, the sum and the output row.
template <class Compute>
void online_softmax_row(Compute* scores, std::int64_t first, std::int64_t last, Compute scale, Compute& maximum,
                        Compute& sum, Compute* output, std::int64_t width) {
    constexpr Compute kMinusInfinity = -std::numeric_limits<Compute>::infinity();
    std::fill(scores, scores + first, kMinusInfinity);
    std::fill(scores + last, scores + kKeyTile, kMinusInfinity);
    Compute largest = kMinusInfinity;
#pragma omp simd reduction(max : largest)
    for (std::int64_t j = 0; j < kKeyTile; ++j) {
        scores[j] *= scale;
        largest = scores[j] > largest ? scores[j] : largest;
    }
    largest = std::max(largest, maximum);
    // A row that has seen no key yet keeps maximum -inf; subtracting 0 instead gives exp(-inf) = 0, not NaN.
    const Compute shift = largest == kMinusInfinity ? Compute(0) : largest;
    Compute added = 0;
#pragma omp simd reduction(+ : added)
    for (std::int64_t j = 0; j < kKeyTile; ++j) {
        scores[j] = exponential(scores[j] - shift);
        added += scores[j];
    }
    const Compute correction = exponential(maximum - shift);
    maximum = largest;
    sum = sum * correction + added;
    if (correction != Compute(1))
        for (std::int64_t j = 0; j < width; ++j) output[j] *= correction;
}

/// In place of codes.
struct NoCodes {
    template <class Compute>
    void put(std::int64_t, std::int64_t, Compute) const {}
};

template <class Types, class Codes>
struct Forward {
    using Storage = typename Types::Storage;
    using Compute = typename Types::Compute;

    AttentionShape shape;
    const Storage* qkv;
    std::int64_t qkv_ld;
    const std::int32_t* doc_start;
    Storage* o;
    std::int64_t o_ld;
    Compute* lse;
    std::int64_t lse_ld;
    Codes codes;  // of o

    const Storage* head(std::int64_t row, std::int64_t slot) const {
        return qkv + row * qkv_ld + slot * shape.head_dim;
    }

    void kv_head(std::int64_t sequence, std::int64_t kv, ForwardBuffers<Compute>& buffers) const {
        const std::int64_t row = sequence * shape.seq_len;
        pack_transposed(head(row, shape.key_slot(kv)), qkv_ld, shape.seq_len, shape.head_dim,
                        buffers.keys_transposed.data());
        pack(head(row, shape.value_slot(kv)), qkv_ld, shape.seq_len, shape.head_dim, round_up(shape.seq_len, kKeyTile),
             buffers.width, buffers.values.data());
        for (std::int64_t h = kv * shape.group(); h < (kv + 1) * shape.group(); ++h)
            for (std::int64_t first = 0; first < shape.seq_len; first += kQueryTile)
                query_tile(row, h, first, std::min(first + kQueryTile, shape.seq_len), buffers);
    }

    /// Computes queries [first, last) of head h in the sequence that starts at `row`.
    void query_tile(std::int64_t row, std::int64_t h, std::int64_t first, std::int64_t last,
                    ForwardBuffers<Compute>& buffers) const {
        const std::int64_t queries = last - first;
        const std::int64_t padded = round_up(queries, kRowBlock);
        const std::int64_t width = buffers.width;
        const auto scale = static_cast<Compute>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
        const std::int32_t* starts = doc_start ? doc_start + row : nullptr;
        Compute* scores = buffers.scores.data();
        Compute* output = buffers.output.data();

        pack(head(row + first, h), qkv_ld, queries, shape.head_dim, padded, width, buffers.query.data());
        Compute maximum[kQueryTile], sum[kQueryTile];
        std::fill(maximum, maximum + kQueryTile, -std::numeric_limits<Compute>::infinity());
        std::fill(sum, sum + kQueryTile, Compute(0));
        std::fill(output, output + padded * width, Compute(0));

        for (std::int64_t tile = first_key_tile(starts, first, last); tile * kKeyTile < last; ++tile) {
            std::fill(scores, scores + padded * kKeyTile, Compute(0));
            multiply_add(padded, kKeyTile, shape.head_dim, LeftOperand<Compute>{buffers.query.data(), width, 1},
                         buffers.keys_transposed.data() + tile * kKeyTile * shape.head_dim, kKeyTile, scores, kKeyTile);
            for (std::int64_t i = 0; i < queries; ++i) {
                const KeyRange keys = visible_keys(starts, first + i);
                const std::int64_t from = std::clamp<std::int64_t>(keys.first - tile * kKeyTile, 0, kKeyTile);
                const std::int64_t to = std::clamp<std::int64_t>(keys.last - tile * kKeyTile, from, kKeyTile);
                online_softmax_row(scores + i * kKeyTile, from, to, scale, maximum[i], sum[i], output + i * width,
                                   width);
            }
            multiply_add(padded, width, kKeyTile, LeftOperand<Compute>{scores, kKeyTile, 1},
                         buffers.values.data() + tile * kKeyTile * width, width, output, width);
        }

        for (std::int64_t i = 0; i < queries; ++i) {
            const Compute inverse = Compute(1) / sum[i];
            Storage* to = o + (row + first + i) * o_ld + h * shape.head_dim;
            for (std::int64_t j = 0; j < shape.head_dim; ++j) {
                const Compute value = output[i * width + j] * inverse;
                to[j] = static_cast<Storage>(value);
                codes.put(row + first + i, h * shape.head_dim + j, value);
            }
            lse[h * lse_ld + row + first + i] = maximum[i] + std::log(sum[i]);
        }
    }
};

}  // namespace

template <>
void execute(const Attention& op, const Memory& memory) {
    dispatch_storage(Attention::name, op.qkv.dtype, [&]<class Types>(Types) {
        using Storage = typename Types::Storage;
        using Compute = typename Types::Compute;
        const AttentionShape shape = attention_shape(op);
        const Operands operands(Attention::name, memory);
        const std::int64_t width = shape.heads * shape.head_dim;
        const auto run = [&]<class Codes>(const Codes& codes) {
            const Forward<Types, Codes> forward{
                .shape = shape,
                .qkv = operands.get<Storage>("qkv", op.qkv, shape.rows, shape.columns()),
                .qkv_ld = op.qkv.ld,
                .doc_start = document_starts(operands, op.doc_start, shape),
                .o = operands.get<Storage>("o", op.o, shape.rows, width),
                .o_ld = op.o.ld,
                .lse = operands.get<Compute>("lse", op.lse, shape.heads, shape.rows),
                .lse_ld = op.lse.ld,
                .codes = codes,
            };
            for_each_kv_head<ForwardBuffers<Compute>>(
                shape,
                [&](std::int64_t sequence, std::int64_t kv, auto& buffers) { forward.kv_head(sequence, kv, buffers); });
        };
        if (!op.o_codes) return run(NoCodes{});
        require_codes(op.name, op.o_names, op.o_codes, DType::f8e4m3, shape.rows, width, dtype_of<Compute>, true);
        with_code_rows<F8E4M3, Storage, Compute>(op.o_codes, memory, run);
    });
}

}  // namespace coda::cpu
