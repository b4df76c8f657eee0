// The one check of an operand's shape and dtype, with one message, for every interpreter.
#pragma once

#include "kernels/core/error.h"
#include "kernels/core/f8.h"
#include "kernels/core/op.h"

namespace coda {

/// Throws Error, naming op and operand, unless the operand is present and is a (rows, cols) matrix of `dtype` whose
/// rows do not overlap and whose columns lie in `order`.
inline void require_operand(const char* op, const char* operand, const View& view, std::int64_t rows, std::int64_t cols,
                            DType dtype, ColumnOrder order = ColumnOrder::natural) {
    require(static_cast<bool>(view), op, ": operand ", operand, " is missing");
    require(view.rows == rows && view.cols == cols, op, ": operand ", operand, " is (", view.rows, ", ", view.cols,
            "), expected (", rows, ", ", cols, ")");
    require(view.dtype == dtype, op, ": operand ", operand, " is ", name_of(view.dtype), ", expected ", name_of(dtype));
    require(view.order == order, op, ": operand ", operand, " has its columns in ",
            order == ColumnOrder::paired ? "natural order, expected pairs of each 16, as in a transposed FP8 copy"
                                         : "pairs of each 16, expected natural order");
    require(rows <= 1 || view.ld >= cols, op, ": operand ", operand, " has rows of ", cols, " elements that are ",
            view.ld, " apart");
}

/// Throws Error unless a result (rows, cols), whose rows are tokens, is rounded with all that belongs to it: scale,
/// amax, transposed codes in paired order and, with `by_rows`, codes by rows. `unit`: of which cols must be a multiple.
inline void require_rounded(const char* op, const RoundedNames& names, const Rounded& codes, std::int64_t rows,
                            std::int64_t cols, bool by_rows = true, std::int64_t unit = 1) {
    require(rows % kF8Multiple == 0, op, ": M is ", rows, ", not a multiple of ", kF8Multiple,
            ": transposed codes keep their tokens in pairs of each ", kF8Multiple);
    require(cols % unit == 0, op, ": N is ", cols, ", not a multiple of ", unit, ", as ", names.rows, " needs it");
    require_operand(op, names.scale, codes.scale, 1, 1, DType::f32);
    if (by_rows)
        require_operand(op, names.rows, codes.rows, rows, cols, DType::f8e4m3);
    else
        require(!codes.rows, op, ": operand ", names.rows, " must be absent: the op makes no codes by rows of it");
    require_operand(op, names.columns, codes.columns, cols, rows, DType::f8e4m3, ColumnOrder::paired);
    require_operand(op, names.amax, codes.amax, 1, 1, DType::f32);
}

}  // namespace coda
