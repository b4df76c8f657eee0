// Operands of an operation: typed views of buffers with an access.
//
// A view names bytes of a buffer, never an address. Whatever can turn a BufferId into memory can plan, print, check or
// execute the same op. `version` counts the writes of the viewed contents. The code that builds an op list records
// which value each reader means, so a reader that comes after an in-place update is caught (src/core/hazards.h) instead
// of silently reading the newer value.
#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"

namespace coda {

using BufferId = std::int32_t;
inline constexpr BufferId kNoBuffer = -1;

enum class Access : std::uint8_t { in, out, inout };

/// Where the columns of a row lie.
enum class ColumnOrder : std::uint8_t {
    natural,
    paired,  // of each 16 columns in the order 0, 8, 1, 9, ..., 7, 15: as epilogues write transposed FP8 copies, whose
             // columns are tokens. Two such copies multiply each other directly; SwiGLU's gradient reads z from one
};

/// The place of column `column` in rows of paired order.
constexpr std::int64_t paired_place(std::int64_t column) {
    const std::int64_t inside = column % 16;
    return column - inside + (inside < 8 ? 2 * inside : 2 * (inside - 8) + 1);
}

struct View {
    BufferId buffer = kNoBuffer;
    DType dtype = DType::f32;
    std::int64_t offset = 0;  // bytes from the start of the buffer
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;        // elements from one row to the next, >= cols
    std::uint32_t version = 0;  // In: the value read. Out: the value produced. InOut: produced, reading version - 1
    ColumnOrder order = ColumnOrder::natural;

    explicit operator bool() const { return buffer != kNoBuffer; }
    std::int64_t count() const { return rows * cols; }
    std::int64_t bytes() const { return count() * size_of(dtype); }
    /// Bytes from the first element to one past the last, with the gaps between rows.
    std::int64_t span_bytes() const { return count() == 0 ? 0 : ((rows - 1) * ld + cols) * size_of(dtype); }

    /// Rows [first, first + number) of this view.
    View row_slice(std::int64_t first, std::int64_t number) const {
        View slice = *this;
        slice.offset += first * ld * size_of(dtype);
        slice.rows = number;
        return slice;
    }
};

// Shapes: documentation that the compiler checks.
struct Matrix {};    // (rows, cols), row-major
struct Vector {};    // (1, n), contiguous
struct Partials {};  // (tiles, rows or columns of the matrix that was reduced), tile-major
struct Scalar {};    // (1, 1)
struct Scratch {};   // (1, bytes) of u8: contents mean nothing before and after the op

/// Whether a launch overwrites a result or adds to it. `overwrite` never reads the destination.
enum class Beta : std::uint8_t { overwrite, accumulate };

template <class Shape, Access access_>
struct Operand : View {
    Operand() = default;
    Operand(const View& view) : View(view) {}  // NOLINT: a view is an operand wherever the field says how it is used
    Access access() const { return access_; }
};
template <class Shape>
using In = Operand<Shape, Access::in>;
template <class Shape>
using Out = Operand<Shape, Access::out>;
template <class Shape>
using InOut = Operand<Shape, Access::inout>;

/// A result that overwrites its destination (Beta::overwrite) or is added to it (Beta::accumulate).
template <class Shape>
struct Accumulate : View {
    Beta beta = Beta::overwrite;

    Accumulate() = default;
    Accumulate(const View& view, Beta how) : View(view), beta(how) {}
    Access access() const { return beta == Beta::accumulate ? Access::inout : Access::out; }
};

/// A gradient by columns from its partials: grad (+)= Σ_tiles partials / norm_factor(gamma), in a fixed order.
struct GradientSum {
    In<Partials> partials = {};    // (tiles, N) statistic
    In<Vector> gamma = {};         // (1, N) master, optional (absent: 1)
    Accumulate<Vector> grad = {};  // (1, N) gradient

    explicit operator bool() const { return partials || gamma || grad; }
};

/// The factor of a product that brings what belongs to both: a matrix in storage, or FP8 codes and the scalar (fp32)
/// that undoes the scales of both factors.
struct Factor : In<Matrix> {
    In<Scalar> undo;

    Factor() = default;
    Factor(const View& matrix, const View& undo_scales = {}) : In<Matrix>(matrix), undo(undo_scales) {}  // NOLINT
};

/// A result that is rounded to FP8: code = f8(scale value), once per element, and the same codes in both layouts.
/// Values beyond the format's largest number take that number; amax = max(amax, |value|) says whether there were any.
struct Rounded {
    In<Scalar> scale = {};     // statistic, a power of two
    Out<Matrix> rows = {};     // (M, N), optional
    Out<Matrix> columns = {};  // (N, M): the transposed codes, optional
    InOut<Scalar> amax = {};   // statistic, at least 0; absent where nobody asks

    explicit operator bool() const { return scale || rows || columns || amax; }
};

/// A result in storage, or rounded: then the view itself is absent.
struct Result : Out<Matrix> {
    Rounded codes;

    Result() = default;
    Result(const View& matrix) : Out<Matrix>(matrix) {}  // NOLINT: as an Operand
    Result(const Rounded& rounded) : codes(rounded) {}   // NOLINT
};

}  // namespace coda
