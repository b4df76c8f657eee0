// StoreKeyValue and DecodeAttention, checked by their formulas in op.h, one thread per element.
#include <cmath>

#include "kernels/core/cache_shape.h"
#include "kernels/ops/key_value_cache/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

namespace {

/// A cache's element is as it was, unless stored(sequence, position) names a row of qkv, from whose `column` on the
/// heads lie: -1 for none.
template <class Stored>
void compare_cache(OpCheck& check, const char* name, const View& cache, const View& qkv, const CacheShape& shape,
                   std::int64_t column, const Stored& stored) {
    const Tensor old = overwritten(check, name, cache, 0), source = live(check, qkv);
    const std::int64_t context = shape.context, kv_heads = shape.kv_heads, head_dim = shape.head_dim;
    compare(check, name, cache.rows, head_dim, live(check, cache),
            [=] __device__(std::int64_t row, std::int64_t in_head) {
                const std::int64_t head = row / context % kv_heads;
                const std::int64_t from = stored(row / (context * kv_heads), row % context);
                return from < 0 ? old(row, in_head) : source(from, column + head * head_dim + in_head);
            });
}

template <class Op, class Stored>
void compare_caches(const Op& op, OpCheck& check, const CacheShape& shape, const Stored& stored) {
    compare_cache(check, "keys", op.keys, op.qkv, shape, shape.key_column(0), stored);
    compare_cache(check, "values", op.values, op.qkv, shape, shape.value_column(0), stored);
}

}  // namespace

template <>
void check_op(const StoreKeyValue& op, OpCheck& check) {
    const std::int32_t* place = check.memory().at<std::int32_t>(op.place);
    compare_caches(op, check, cache_shape(op), [=] __device__(std::int64_t sequence, std::int64_t position) {
        const std::int64_t m = position - place[1];
        return sequence == place[0] && m >= 0 && m < place[2] ? m : std::int64_t{-1};
    });
}

template <>
void check_op(const DecodeAttention& op, OpCheck& check) {
    const CacheShape shape = cache_shape(op);
    const std::int32_t* lengths = check.memory().at<std::int32_t>(op.lengths);
    const std::int64_t rows_each = op.rows_each;
    compare_caches(op, check, shape, [=] __device__(std::int64_t sequence, std::int64_t position) {
        for (std::int64_t m = sequence * rows_each; m < (sequence + 1) * rows_each; ++m)
            if (lengths[m] == position + 1) return m;
        return std::int64_t{-1};
    });
    const Tensor qkv = live(check, op.qkv), keys = live(check, op.keys), values = live(check, op.values);
    const std::int64_t head_dim = shape.head_dim, group = shape.group(), kv_heads = shape.kv_heads;
    const std::int64_t context = shape.context, most = op.most_positions();
    const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
    compare(check, "o", op.o.rows, op.o.cols, live(check, op.o), [=] __device__(std::int64_t m, std::int64_t column) {
        const std::int64_t head = column / head_dim, first = (m / rows_each * kv_heads + head / group) * context;
        double largest = -INFINITY, sum = 0, weighted = 0;                    // of exp(logit - largest)
        const std::int64_t hidden = max(lengths[m] - most, std::int64_t{0});  // positions before the window
        for (std::int64_t p = first + hidden; p < first + lengths[m]; ++p) {
            double logit = 0;
            for (std::int64_t j = 0; j < head_dim; ++j)
                logit += static_cast<double>(qkv(m, head * head_dim + j)) * static_cast<double>(keys(p, j));
            logit *= scale;
            const double next = fmax(largest, logit), fade = exp(largest - next), e = exp(logit - next);
            sum = sum * fade + e;
            weighted = weighted * fade + e * static_cast<double>(values(p, column % head_dim));
            largest = next;
        }
        return lengths[m] == 0 ? 0.0 : weighted / sum;
    });
}

}  // namespace coda::oracle
