// The one check of an operand's shape and dtype, with one message, for every interpreter.
#pragma once

#include "kernels/core/error.h"
#include "kernels/core/operand.h"

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

/// Throws Error where an operand of an op's FP8 form is present although `a` is not FP8.
inline void require_no_f8_factor(const char* op, const char* operand, const View& view, const View& a) {
    require(!view, op, ": ", operand, " goes with FP8 operands, and a is ", name_of(a.dtype));
}

}  // namespace coda
