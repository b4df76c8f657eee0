// What a check of one op found. Host-only.
#pragma once

#include <string>
#include <vector>

namespace coda::oracle {

/// The difference of one written operand from what it should be. 0 is equality; infinity where a compared element is
/// not finite on either side, or where anything but zeros stands in place of zeros.
///
/// Named by the op's field, but where a field holds tensors of different sizes: dqkv of the attention ops is "dq", "dk"
/// and "dv", and of CrossEntropyBackward's logits the elements of the targets are "target" (about -1 among
/// probabilities). What is compared is what the field stands for: a pair (max, sum) of log-sum-exp partials as
/// max + log sum. Elements that the op's contract leaves unwritten (target_logit of ignored rows) are left out.
struct OperandError {
    std::string operand;
    double rms = 0;      // RMS of the difference / RMS of the expected values, or for dq and dk of their terms
    double largest = 0;  // the same of the largest magnitudes
};

struct Report {
    std::vector<OperandError> operands;  // every operand that the op writes, scratch aside
};

}  // namespace coda::oracle
