// How far a correct result may be from the oracle's, and the line that reports how far it was. Host-only.
#pragma once

#include <string>

#include "kernels/core/operand.h"
#include "kernels/ops.h"
#include "kernels/oracle/report.h"

namespace coda::oracle {

/// Bounds that a correct kernel with bf16 operands and fp32 accumulation keeps; derived in tolerance.cpp and in the op.
/// `operand` is a name as in OperandError. Throws Error where the op writes no such operand.
Tolerance tolerance(const Op& op, const std::string& operand);

/// Whether the report of `op` has operands and each is within its tolerance.
bool within_tolerance(const Op& op, const Report& report);

/// One line: the relative RMS of every operand and, after each run of operands with equal tolerance, that tolerance:
///   layer 3 qkv_dgrad LinearRmsBackward  dx 1.7e-03  n 1.8e-03  (tolerance 4.0e-03)  dgamma 2.0e-07
///   (tolerance 7.1e-05) ok
/// (without the break). Where operands exceed their tolerance, "BEYOND" stands instead of "ok", followed by these
/// operands with their largest error and its bound.
std::string line_of(const std::string& label, const Op& op, const Report& report);

}  // namespace coda::oracle
