// What UnpackInt4's operands must be, apart from their dtypes. Host.
#pragma once

#include "kernels/core/operand_check.h"
#include "kernels/math/int4.h"
#include "kernels/ops/unpack_int4/op.h"

namespace coda {

/// Throws Error where `working` is empty or no whole units, or `units` are not as many i32 words.
inline void require_shape(const UnpackInt4& op) {
    const std::int64_t rows = op.working.rows, width = op.working.cols;
    require(rows > 0 && width > 0 && rows % kInt4Rows == 0 && width % kInt4Group == 0, op.name, ": working is (", rows,
            ", ", width, "), expected whole units of ", kInt4Rows, " rows and ", kInt4Group, " columns");
    require_operand(op.name, "units", op.units, rows / kInt4Rows, width / kInt4Group * kInt4UnitWords, DType::i32);
}

}  // namespace coda
