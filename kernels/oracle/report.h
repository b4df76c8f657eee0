// What a check of one op found. Host-only.
#pragma once

#include <string>
#include <vector>

namespace coda::oracle {

/// The difference of one written operand from what it should be. 0 is equality; infinity where a compared element is
/// not finite on either side, or where anything but zeros stands in place of zeros.
///
/// Named by the op's field, but where a field holds tensors of different sizes: dqkv of the attention ops is "dq", "dk"
/// and "dv", and of the exponentials that FinishCrossEntropy leaves, those of the targets are "target".
///
/// What differs in size by many powers of two is measured against its own size, each element: exponentials and
/// FinishCrossEntropy's scale against themselves, "target" against its row's sum, of the pairs (Σ e, Σ e d) the first
/// against itself and the second against Σ e (1 + |d|), a scaled n before the scale.
struct OperandError {
    std::string operand;
    double rms = 0;      // RMS of the difference / RMS of the expected values, or for dq and dk of their terms
    double largest = 0;  // the same of the largest magnitudes
};

struct Report {
    std::vector<OperandError> operands;  // every operand that the op writes, scratch aside
};

}  // namespace coda::oracle
