// What the operands of UpdateScales and CountF8 must be, apart from their dtypes. Host.
#pragma once

#include <limits>

#include "kernels/core/operand_check.h"
#include "kernels/ops/scales/op.h"

namespace coda {

/// Throws Error where pairs do not fit the tensors.
inline void require_shape(const UpdateScales& op) {
    const std::int64_t tensors = op.amax.cols;
    require(tensors > 0 && op.window() > 0, op.name, ": a history of ", op.window(), " steps of ", tensors,
            " tensors is empty");
    for (const auto& pair : op.pairs)
        for (const std::int32_t index : pair)
            require(index >= kNormalised && index < tensors, op.name, ": a pair names scale ", index, " of ", tensors);
}

/// Throws Error where rows are no whole groups of 16, or too many to count.
inline void require_shape(const CountF8& op) {
    require(op.every > 0, op.name, ": every is ", op.every, ", not positive");
    require(is_f8(op.codes.dtype), op.name, ": operand codes is ", name_of(op.codes.dtype),
            ", expected f8e4m3 or f8e5m2");
    require_operand(op.name, "codes", op.codes, op.codes.rows, op.codes.cols, op.codes.dtype, op.codes.order);
    require(op.codes.count() > 0, op.name, ": codes is (", op.codes.rows, ", ", op.codes.cols, "), which is empty");
    require(op.codes.cols % kF8Multiple == 0, op.name, ": N is ", op.codes.cols, ", not a multiple of ", kF8Multiple);
    require(op.counted_rows() * op.codes.cols <= std::numeric_limits<std::int32_t>::max(), op.name, ": it would count ",
            op.counted_rows() * op.codes.cols, " codes, and can 2^31 - 1; every = ", op.every, " is too small");
}

}  // namespace coda
