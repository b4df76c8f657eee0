// What the operands of LinearRmsBackward's FP8 copies of dx must be. Host.
#pragma once

#include "kernels/core/operand_check.h"
#include "kernels/ops/linear_rms_backward/op.h"

namespace coda {

/// Whether the op makes FP8 copies of dx.
inline bool makes_copies(const LinearRmsBackward& op) { return op.dx_scale || op.dx_f8 || op.dx_f8_t || op.dx_amax; }

/// Throws Error where it does and one of the four operands is missing or does not fit dx, where M or N are no whole
/// groups of 16, or where `a` is not FP8.
inline void require_copies(const LinearRmsBackward& op) {
    if (!makes_copies(op)) return;
    constexpr std::int64_t kUnit = LinearRmsBackward::kF8Multiple;
    const std::int64_t m = op.dx.rows, n = op.dx.cols;
    require(is_f8(op.a.dtype), op.name, ": FP8 copies of dx go with FP8 operands, and a is ", name_of(op.a.dtype));
    require(m % kUnit == 0 && n % kUnit == 0, op.name, ": dx is (", m, ", ", n, "), not whole groups of ", kUnit,
            ", as its FP8 copies need them");
    require_operand(op.name, "dx_scale", op.dx_scale, 1, 1, DType::f32);
    require_operand(op.name, "dx_f8", op.dx_f8, m, n, DType::f8e4m3);
    require_operand(op.name, "dx_f8_t", op.dx_f8_t, n, m, DType::f8e4m3, ColumnOrder::paired);
    require_operand(op.name, "dx_amax", op.dx_amax, 1, 1, DType::f32);
}

}  // namespace coda
