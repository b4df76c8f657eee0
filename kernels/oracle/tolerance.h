// How far a right result may be from the oracle's, and the line that says how far it was. Host-only.
#pragma once

#include <string>

#include "kernels/core/operand.h"
#include "kernels/ops.h"
#include "kernels/oracle/report.h"

namespace coda::oracle {

/// What a right kernel with bf16 operands and fp32 accumulation stays within; derived in tolerance.cpp and in the op.
/// `operand` as in OperandError. Throws Error where the op writes no such operand.
Tolerance tolerance(const Op& op, const std::string& operand);

/// Whether every operand of a report of `op` is within its tolerance, and there is one.
bool within_tolerance(const Op& op, const Report& report);

/// One line, the relative RMS of every operand and after each run of equal tolerances that tolerance:
///   layer 3 qkv_dgrad LinearRmsBackward  dx 1.7e-03  n 1.8e-03  (tolerance 4.0e-03)  dgamma 2.0e-07
///   (tolerance 7.1e-05) ok
/// (on one line). Instead of "ok": "BEYOND" and the operands that are, with their largest error and its bound.
std::string line_of(const std::string& label, const Op& op, const Report& report);

}  // namespace coda::oracle
