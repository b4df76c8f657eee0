// The oracle: runs one op again on live tensors by an independent path and says how far its results are off.
//
//   const Capture before = oracle.capture(op, memory, stream);   // what the op is about to overwrite
//   launch(stream);
//   const Report report = oracle.check(op, memory, before, stream);
//
// GEMM ops: the product by cuBLASLt with fp32 accumulation and fp32 output, and a plain epilogue, one thread an element
// and no rounding but where the op's formula rounds. The product is made in bands of rows within a fixed budget of
// device memory (256 MiB), so a product of any size is checked whole. Every other op: cpu::run on a copy of its
// operands, where they fit the budget of host memory.
//
// Both calls synchronise the stream. Never part of a training step: a diagnostic (--oracle) and a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/hopper/run.h"
#include "kernels/memory.h"
#include "kernels/ops.h"

namespace coda::oracle {

/// Copies of what an op reads and overwrites: InOut operands, and In operands that share bytes with an Out (in place).
/// By field name; rows without gaps. Device memory, freed with the capture.
struct Capture {
    std::map<std::string, std::shared_ptr<std::byte>> copies;
};

/// The difference of one written operand from what it should be. 0 is equality; infinity where either is not finite.
/// A pair (max, sum) of log-sum-exp partials is compared as max + log sum, which is what it stands for; elements that
/// the op's contract leaves unwritten (target_logit of ignored rows) are left out.
struct OperandError {
    std::string operand;
    double rms = 0;      // RMS of the difference / RMS of the expected values
    double largest = 0;  // largest |difference| / largest |expected value|
};

struct Report {
    std::vector<OperandError> operands;  // in order of the op's fields; empty where the op was not checked
    std::string skipped;                 // why it was not checked; empty where it was

    double worst_rms() const;
};

class Oracle {
  public:
    /// `host_budget`: bytes of operands up to which ops without a GEMM are copied to the host and run there.
    explicit Oracle(std::int64_t host_budget = std::int64_t{4} << 30);
    ~Oracle();
    Oracle(const Oracle&) = delete;
    Oracle& operator=(const Oracle&) = delete;

    /// Throws Error where device memory for the copies runs out.
    Capture capture(const Op& op, const Memory& memory, hopper::Stream stream = nullptr);

    /// Operands of bf16 storage, as hopper::prepare takes them. The first GEMM op loads cuBLASLt: throws Error naming
    /// libcublasLt where it is absent. Throws Error where a captured operand is missing from `before`.
    Report check(const Op& op, const Memory& memory, const Capture& before, hopper::Stream stream = nullptr);

  private:
    struct Resources;
    std::unique_ptr<Resources> resources_;
};

}  // namespace coda::oracle
