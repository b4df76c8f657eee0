// The result of checking one op. Host-only.
#pragma once

#include <string>
#include <vector>

namespace coda::oracle {

/// The difference of one written operand from its expected value. 0 means equal. Infinity means that an element is not
/// finite on either side, or that an operand that should be all zeros is not.
///
/// Usually named by the op's field. A field that holds tensors of different sizes has several names: dqkv of
/// AttentionBackward is "dq", "dk" and "dv", and the targets' elements of FinishCrossEntropy's exponentials are
/// "target".
///
/// Where elements differ in size by many powers of two, each is measured against its own size: exponentials and
/// FinishCrossEntropy's scale against themselves; "target" against its row's sum; in the pairs (Σ e, Σ e d) the first
/// against itself and the second against Σ e (1 + |d|). A scaled n is measured before the scale.
///
/// LinearRmsBackward's dgamma sums results of a GEMM that may be small compared with what cancels in them: each element
/// is measured against the size of its terms (column_sum.h).
struct OperandError {
    std::string operand;
    double rms = 0;      // RMS of the difference / RMS of the expected values, or for dq and dk of their terms
    double largest = 0;  // the same ratio of largest magnitudes
};

struct Report {
    std::vector<OperandError> operands;  // every operand that the op writes, scratch aside
};

}  // namespace coda::oracle
