// What QuantiseF8's operands must be, apart from their dtypes. Host.
#pragma once

#include "kernels/core/operand_check.h"
#include "kernels/ops/quantise/op.h"

namespace coda {

/// Throws Error where the op writes nothing, or where its copies are no whole groups of 16. Either order of `columns`
/// is right.
inline void require_shape(const QuantiseF8& op) {
    require(op.codes.rows || op.codes.columns || op.codes.amax, op.name,
            ": rows, columns and amax are missing; it would write nothing");
    require(op.x.rows > 0 && op.x.cols > 0, op.name, ": x is (", op.x.rows, ", ", op.x.cols, "), which is empty");
    require(op.x.cols % kF8Multiple == 0, op.name, ": N is ", op.x.cols, ", not a multiple of ", kF8Multiple);
    require(is_f8(op.format()), op.name, ": its copies are ", name_of(op.format()), ", expected f8e4m3 or f8e5m2");
    if (!op.codes.columns) return;
    require(op.x.rows % kF8Multiple == 0, op.name, ": M is ", op.x.rows, ", not a multiple of ", kF8Multiple,
            ", as the transposed copy needs it");
    require_operand(op.name, "columns", op.codes.columns, op.x.cols, op.x.rows, op.format(), op.codes.columns.order);
}

}  // namespace coda
