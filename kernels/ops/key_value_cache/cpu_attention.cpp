// DecodeAttention on the CPU: three passes over a sequence's positions, per query head.
//
//   s_p = q k_p / sqrt(hd), m = max s;   e_p = exp(s_p - m), sum = Σ e;   o = Σ e_p v_p / sum
//
// One task is one query head of one sequence, so every sum has the same order for any number of threads and in any
// batch of sequences.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/cache_shape.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/ops/key_value_cache/op.h"

namespace coda::cpu {

namespace {

template <class Compute, class Storage>
Compute dot(const Storage* a, const Storage* b, std::int64_t count) {
    Compute sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < count; ++j) sum += static_cast<Compute>(a[j]) * static_cast<Compute>(b[j]);
    return sum;
}

/// One query head over `length` positions of its head, from row `first` of the caches on. `scores` holds `length`
/// elements, `sums` head_dim.
template <class Storage, class Compute>
void attend(const Storage* query, Rows<Storage> keys, Rows<Storage> values, std::int64_t first, std::int64_t length,
            std::int64_t head_dim, Compute* scores, Compute* sums, Storage* o) {
    const auto scale = static_cast<Compute>(1 / std::sqrt(static_cast<double>(head_dim)));
    Compute largest = -std::numeric_limits<Compute>::infinity();
    for (std::int64_t p = 0; p < length; ++p) {
        scores[p] = scale * dot<Compute>(query, keys[first + p], head_dim);
        largest = std::max(largest, scores[p]);
    }
    Compute sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t p = 0; p < length; ++p) {
        scores[p] = exponential(scores[p] - largest);
        sum += scores[p];
    }
    std::fill_n(sums, head_dim, Compute(0));
    for (std::int64_t p = 0; p < length; ++p) {
        const Storage* value = values[first + p];
#pragma omp simd
        for (std::int64_t j = 0; j < head_dim; ++j) sums[j] += scores[p] * static_cast<Compute>(value[j]);
    }
    for (std::int64_t j = 0; j < head_dim; ++j) store(o[j], sums[j] / sum);
}

}  // namespace

template <>
void execute(const DecodeAttention& op, const Memory& memory) {
    dispatch_storage(op.name, op.qkv.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const CacheShape shape = cache_shape(op);
        const Operands operands(op.name, memory);
        const std::int64_t head_dim = shape.head_dim;
        const auto qkv = rows_of<const Storage>(operands, "qkv", op.qkv, shape.rows, shape.columns());
        const auto keys = rows_of<Storage>(operands, "keys", op.keys, op.keys.rows, head_dim);
        const auto values = rows_of<Storage>(operands, "values", op.values, op.keys.rows, head_dim);
        const auto o = rows_of<Storage>(operands, "o", op.o, shape.sequences, shape.heads * head_dim);
        const std::int32_t* lengths = operands.get<std::int32_t>("lengths", op.lengths, 1, shape.sequences);
        operands.require_indices("lengths", lengths, shape.sequences, shape.context + 1);

        for (std::int64_t s = 0; s < shape.sequences; ++s) {
            for (std::int64_t head = 0; head < shape.kv_heads && lengths[s] > 0; ++head) {
                const std::int64_t row = shape.cache_row(s, head, lengths[s] - 1);
                std::copy_n(qkv[s] + shape.key_column(head), head_dim, keys[row]);
                std::copy_n(qkv[s] + shape.value_column(head), head_dim, values[row]);
            }
        }
        const std::int64_t longest = *std::max_element(lengths, lengths + shape.sequences);
        const auto room = static_cast<std::size_t>(longest + head_dim);
        // Allocated here, as no exception may leave a parallel region.
        std::vector<Compute> buffers(room * static_cast<std::size_t>(omp_get_max_threads()));
#pragma omp parallel for collapse(2) schedule(dynamic)
        for (std::int64_t s = 0; s < shape.sequences; ++s)
            for (std::int64_t h = 0; h < shape.heads; ++h) {
                Storage* to = o[s] + h * head_dim;
                if (lengths[s] == 0) {
                    std::fill_n(to, head_dim, Storage(0));
                    continue;
                }
                Compute* buffer = buffers.data() + room * static_cast<std::size_t>(omp_get_thread_num());
                const std::int64_t seen = std::min<std::int64_t>(lengths[s], op.most_positions());
                attend<Storage, Compute>(qkv[s] + h * head_dim, keys, values,
                                         shape.cache_row(s, h / shape.group(), lengths[s] - seen), seen, head_dim,
                                         buffer, buffer + longest, to);
            }
    });
}

}  // namespace coda::cpu
