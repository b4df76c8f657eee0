// Shared by the checks of attention's forward and backward pass: one head of a packed matrix in fp32, and the keys that
// a query sees.
#pragma once

#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

/// One sequence of an attention op; rows and positions count from its first token.
template <class Op>
struct Sequence {
    const Op& op;
    OpCheck& check;
    std::int64_t start;  // its first row in the op's matrices

    std::int64_t group() const { return op.heads / op.kv_heads; }
    std::int64_t key_slot(std::int64_t kv_head) const { return op.heads + kv_head; }
    std::int64_t value_slot(std::int64_t kv_head) const { return op.heads + op.kv_heads + kv_head; }

    /// Rows from `first` on of head slot `slot` of a matrix of heads side by side.
    Tensor head(const View& view, std::int64_t slot, std::int64_t first) const {
        Tensor tensor = live(check, view, start + first);
        tensor.data = static_cast<const std::byte*>(tensor.data) + slot * op.head_dim * size_of(view.dtype);
        return tensor;
    }

    /// Row `row`, from position `first` on, of an fp32 matrix (heads, M).
    Tensor statistic(const View& view, std::int64_t row, std::int64_t first) const {
        Tensor tensor = live(check, view, row);
        tensor.data = static_cast<const float*>(tensor.data) + start + first;
        return tensor;
    }

    /// Copies `rows` rows of a head slot, from `first` on, to `to` (rows, head_dim) in fp32.
    void widen(const View& view, std::int64_t slot, std::int64_t first, std::int64_t rows, float* to) const {
        const Tensor from = head(view, slot, first);
        const std::int64_t columns = op.head_dim;
        for_each(check, rows, columns, [=] __device__(std::int64_t row, std::int64_t column) {
            to[row * columns + column] = from(row, column);
        });
    }

    float scale() const { return static_cast<float>(1 / std::sqrt(static_cast<double>(op.head_dim))); }
};

/// The keys that a band of queries sees.
struct Mask {
    std::int64_t first;         // position of the band's first query
    const std::int32_t* start;  // doc_start from there on, or nullptr

    __device__ bool operator()(std::int64_t row, std::int64_t key) const {
        return key <= first + row && (start == nullptr || key >= start[row]);
    }
};

template <class Op>
Mask mask_of(const Sequence<Op>& sequence, std::int64_t first) {
    const std::int32_t* starts = sequence.check.memory().template at<std::int32_t>(sequence.op.doc_start);
    return {first, starts == nullptr ? nullptr : starts + sequence.start + first};
}

/// out (m, n) = A B or out += A B, all in fp32 and without gaps.
inline void multiply(OpCheck& check, const float* a, hopper::Major major_a, const float* b, hopper::Major major_b,
                     std::int64_t m, std::int64_t n, std::int64_t k, float* out, Beta beta = Beta::overwrite) {
    check.product({.a = a,
                   .b = b,
                   .out = out,
                   .m = m,
                   .n = n,
                   .k = k,
                   .lda = major_a == hopper::Major::k ? k : m,
                   .ldb = major_b == hopper::Major::k ? k : n,
                   .major_a = major_a,
                   .major_b = major_b,
                   .in_dtype = DType::f32,
                   .beta = beta});
}

/// The fp32 arrays of a check: how many of each shape.
struct ArrayCounts {
    std::int64_t whole;      // (T, head_dim)
    std::int64_t band;       // (queries, head_dim)
    std::int64_t squares;    // (queries, T)
    std::int64_t per_key;    // (T)
    std::int64_t per_query;  // (queries)
};

/// Cuts a sequence's queries into bands for which the arrays fit the work space.
template <class Op>
std::vector<Band> query_bands(const Op& op, const WorkSpace& space, const ArrayCounts& counts) {
    const std::int64_t whole = (counts.whole * op.head_dim + counts.per_key) * op.seq_len;
    const std::int64_t query = counts.band * op.head_dim + counts.squares * op.seq_len + counts.per_query;
    const std::int64_t pieces = counts.whole + counts.band + counts.squares + counts.per_key + counts.per_query;
    return bands(op.seq_len, query * size_of(DType::f32), 1,
                 space.bytes() - whole * size_of(DType::f32) - pieces * Pieces::kAlignment);
}

}  // namespace coda::oracle
