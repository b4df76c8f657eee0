// The one check of an operand's shape and dtype, with one message, for every interpreter.
#pragma once

#include "kernels/core/error.h"
#include "kernels/core/operand.h"

namespace coda {

/// Throws Error, naming op and operand, unless the operand is present and is a (rows, cols) matrix of `dtype` whose
/// rows do not overlap.
inline void require_operand(const char* op, const char* operand, const View& view, std::int64_t rows, std::int64_t cols,
                            DType dtype) {
    require(static_cast<bool>(view), op, ": operand ", operand, " is missing");
    require(view.rows == rows && view.cols == cols, op, ": operand ", operand, " is (", view.rows, ", ", view.cols,
            "), expected (", rows, ", ", cols, ")");
    require(view.dtype == dtype, op, ": operand ", operand, " is ", name_of(view.dtype), ", expected ", name_of(dtype));
    require(rows <= 1 || view.ld >= cols, op, ": operand ", operand, " has rows of ", cols, " elements that are ",
            view.ld, " apart");
}

}  // namespace coda
