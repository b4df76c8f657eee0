// DecodeAttention on the CPU: three passes over a row's positions, per query head.
//
//   s_p = q k_p / sqrt(hd), m = max s;   e_p = exp(s_p - m), sum = Σ e;   o = Σ e_p v_p / sum
//
// One task is one query head of one row, so every sum has the same order for any number of threads and in any batch.
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

/// Throws Error where rows of a sequence do not follow one another.
void require_consecutive(const DecodeAttention& op, const std::int32_t* lengths, std::int64_t rows) {
    for (std::int64_t m = 0; m < rows; ++m) {
        if (m % op.rows_each == 0 || lengths[m] == 0) continue;
        require(lengths[m - 1] > 0 && lengths[m] == lengths[m - 1] + 1, op.name, ": lengths[", m - 1, "] and lengths[",
                m, "], of one sequence, are ", lengths[m - 1], " and ", lengths[m],
                "; each row must be one token longer than the one before, idle ones last");
    }
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
        const auto o = rows_of<Storage>(operands, "o", op.o, shape.rows, shape.heads * head_dim);
        const std::int32_t* lengths = operands.get<std::int32_t>("lengths", op.lengths, 1, shape.rows);
        operands.require_indices("lengths", lengths, shape.rows, shape.context + 1);
        require_consecutive(op, lengths, shape.rows);
        const auto cache_row = [&](std::int64_t m, std::int64_t head, std::int64_t position) {
            return shape.cache_row(m / op.rows_each, head, position);
        };

        for (std::int64_t m = 0; m < shape.rows; ++m) {
            for (std::int64_t head = 0; head < shape.kv_heads && lengths[m] > 0; ++head) {
                const std::int64_t row = cache_row(m, head, lengths[m] - 1);
                std::copy_n(qkv[m] + shape.key_column(head), head_dim, keys[row]);
                std::copy_n(qkv[m] + shape.value_column(head), head_dim, values[row]);
            }
        }
        const std::int64_t longest = *std::max_element(lengths, lengths + shape.rows);
        const auto room = static_cast<std::size_t>(longest + head_dim);
        // Allocated here, as no exception may leave a parallel region.
        std::vector<Compute> buffers(room * static_cast<std::size_t>(omp_get_max_threads()));
#pragma omp parallel for collapse(2) schedule(dynamic)
        for (std::int64_t m = 0; m < shape.rows; ++m)
            for (std::int64_t h = 0; h < shape.heads; ++h) {
                Storage* to = o[m] + h * head_dim;
                if (lengths[m] == 0) {
                    std::fill_n(to, head_dim, Storage(0));
                    continue;
                }
                Compute* buffer = buffers.data() + room * static_cast<std::size_t>(omp_get_thread_num());
                const std::int64_t seen = std::min<std::int64_t>(lengths[m], op.most_positions());
                attend<Storage, Compute>(qkv[m] + h * head_dim, keys, values,
                                         cache_row(m, h / shape.group(), lengths[m] - seen), seen, head_dim, buffer,
                                         buffer + longest, to);
            }
    });
}

}  // namespace coda::cpu
