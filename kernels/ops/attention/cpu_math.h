// Shared by attention's forward and backward pass on the CPU: tiles of heads in the compute type,
// and the small GEMMs between tiles.
//
// One task is one (sequence, key/value head). It packs that head's keys and values once, then walks its query heads and
// their query tiles in order, so every sum has the same order for any number of threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/core/attention_shape.h"
#include "kernels/cpu/access.h"
#include "kernels/ops/attention/op.h"

namespace coda::cpu {

inline constexpr std::int64_t kQueryTile = 64;
inline constexpr std::int64_t kKeyTile = 64;
inline constexpr std::int64_t kRowBlock = 4;  // rows of C that multiply_add keeps in registers

template <class T>
inline constexpr std::int64_t kColumnBlock = 64 / static_cast<std::int64_t>(sizeof(T));

/// doc_start as a checked pointer: 0 <= doc_start[t] <= t, or nullptr where the op has none.
inline const std::int32_t* document_starts(const Operands& operands, const View& view, const AttentionShape& shape) {
    const auto* start = operands.get_optional<std::int32_t>("doc_start", view, 1, shape.rows);
    for (std::int64_t m = 0; start && m < shape.rows; ++m)
        require(start[m] >= 0 && start[m] <= m % shape.seq_len, operands.op(), ": doc_start[", m, "] is ", start[m],
                ", outside [0, ", m % shape.seq_len, "], the positions up to the row's own");
    return start;
}

/// Keys [first, last) that the query at `position` of a sequence may see.
struct KeyRange {
    std::int64_t first, last;
};
inline KeyRange visible_keys(const std::int32_t* doc_start, std::int64_t position) {
    return {doc_start ? doc_start[position] : 0, position + 1};
}

/// The first key tile that any of the queries [first, last) sees.
inline std::int64_t first_key_tile(const std::int32_t* doc_start, std::int64_t first, std::int64_t last) {
    if (!doc_start) return 0;
    return *std::min_element(doc_start + first, doc_start + last) / kKeyTile;
}

/// to (rows_padded, columns_padded) = from (rows, columns), with zeros in the padding.
template <class Storage, class Compute>
void pack(const Storage* from, std::int64_t from_ld, std::int64_t rows, std::int64_t columns, std::int64_t rows_padded,
          std::int64_t columns_padded, Compute* to) {
    for (std::int64_t i = 0; i < rows; ++i) {
        const Storage* source = from + i * from_ld;
        Compute* target = to + i * columns_padded;
        for (std::int64_t j = 0; j < columns; ++j) target[j] = static_cast<Compute>(source[j]);
        std::fill(target + columns, target + columns_padded, Compute(0));
    }
    std::fill(to + rows * columns_padded, to + rows_padded * columns_padded, Compute(0));
}

/// Cuts `from` (rows, columns) into tiles of kKeyTile rows and transposes each: tile j holds (columns, kKeyTile).
template <class Storage, class Compute>
void pack_transposed(const Storage* from, std::int64_t from_ld, std::int64_t rows, std::int64_t columns, Compute* to) {
    for (std::int64_t first = 0; first < rows; first += kKeyTile, to += columns * kKeyTile) {
        const std::int64_t number = std::min(kKeyTile, rows - first);
        if (number < kKeyTile) std::fill(to, to + columns * kKeyTile, Compute(0));
        for (std::int64_t i = 0; i < number; ++i)
            for (std::int64_t j = 0; j < columns; ++j)
                to[j * kKeyTile + i] = static_cast<Compute>(from[(first + i) * from_ld + j]);
    }
}

/// The left operand of multiply_add: element (i, k) at data[i * row_stride + k * inner_stride].
template <class T>
struct LeftOperand {
    const T* data;
    std::int64_t row_stride, inner_stride;
};

/// C (rows, columns) += A (rows, inner) B (inner, columns); B and C row-major. `rows` is a multiple of kRowBlock and
/// `columns` of kColumnBlock<T>. The sum over `inner` runs in order.
template <class T>
void multiply_add(std::int64_t rows, std::int64_t columns, std::int64_t inner, LeftOperand<T> a, const T* b,
                  std::int64_t b_ld, T* c, std::int64_t c_ld) {
    typedef T Lanes __attribute__((vector_size(32)));
    constexpr std::int64_t kLanes = 32 / static_cast<std::int64_t>(sizeof(T));
    const auto load = [](const T* from) {
        Lanes lanes;
        std::memcpy(&lanes, from, sizeof(lanes));
        return lanes;
    };
    const auto add_to = [&load](T* to, Lanes sum) {
        sum += load(to);
        std::memcpy(to, &sum, sizeof(sum));
    };
    for (std::int64_t i = 0; i < rows; i += kRowBlock) {
        const T* a_rows = a.data + i * a.row_stride;
        for (std::int64_t j = 0; j < columns; j += kColumnBlock<T>) {
            Lanes left[kRowBlock] = {}, right[kRowBlock] = {};
            for (std::int64_t k = 0; k < inner; ++k) {
                const Lanes b_left = load(b + k * b_ld + j);
                const Lanes b_right = load(b + k * b_ld + j + kLanes);
                for (std::int64_t row = 0; row < kRowBlock; ++row) {
                    const T factor = a_rows[row * a.row_stride + k * a.inner_stride];
                    left[row] += factor * b_left;
                    right[row] += factor * b_right;
                }
            }
            for (std::int64_t row = 0; row < kRowBlock; ++row) {
                add_to(c + (i + row) * c_ld + j, left[row]);
                add_to(c + (i + row) * c_ld + j + kLanes, right[row]);
            }
        }
    }
}

/// Calls fn(sequence, key/value head, buffers) for every task, with one Buffers per thread.
template <class Buffers, class Fn>
void for_each_kv_head(const AttentionShape& shape, const Fn& fn) {
    const std::int64_t tasks = shape.batch() * shape.kv_heads;
    const int threads = static_cast<int>(std::min<std::int64_t>(omp_get_max_threads(), tasks));
    std::vector<Buffers> buffers;  // allocated here, as no exception may leave a parallel region
    for (int thread = 0; thread < threads; ++thread) buffers.emplace_back(shape);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (std::int64_t task = 0; task < tasks; ++task)
        fn(task / shape.kv_heads, task % shape.kv_heads, buffers[static_cast<std::size_t>(omp_get_thread_num())]);
}

}  // namespace coda::cpu
