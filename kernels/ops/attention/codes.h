// What the codes of attention's o and dqkv must be. Host.
#pragma once

#include "kernels/core/operand_check.h"

namespace coda {

/// Throws Error unless the codes of a matrix (rows, columns) are complete: scale and amax of type `statistic`, codes of
/// `format` by rows and, in paired order, transposed. `optional`: the transposed ones may be absent.
inline void require_codes(const char* op, const RoundedNames& names, const Rounded& codes, DType format,
                          std::int64_t rows, std::int64_t columns, DType statistic, bool optional) {
    require_operand(op, names.scale, codes.scale, 1, 1, statistic);
    require_operand(op, names.rows, codes.rows, rows, columns, format);
    require_operand(op, names.amax, codes.amax, 1, 1, statistic);
    if (optional && !codes.columns) return;
    require(rows % kF8Multiple == 0, op, ": M is ", rows, ", not a multiple of ", kF8Multiple,
            ": transposed codes keep their tokens in pairs of each ", kF8Multiple);
    require_operand(op, names.columns, codes.columns, columns, rows, format, ColumnOrder::paired);
}

}  // namespace coda
