// The oracle: runs one op again on live tensors by an independent path and says how far its results are off.
//
//   const Capture before = oracle.capture(op, memory, stream);   // what the op is about to overwrite
//   launch(stream);
//   const Report report = oracle.check(op, memory, before, stream);
//   within_tolerance(op, report), line_of(label, op, report)      // tolerance.h
//
// Products (of the GEMM ops, and of attention for each query head) are cuBLASLt's, with fp32 accumulation and fp32
// output; everything else is the op's formula written out plainly on the device, one thread an element and no rounding
// but where the formula rounds. Every op is checked, and every element of what it writes: intermediate results that
// exceed the work space are made in bands of rows.
//
// Both calls synchronise the stream. Never part of a training step: a diagnostic (--oracle) and a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "kernels/core/memory.h"
#include "kernels/hopper/run.h"
#include "kernels/ops.h"
#include "kernels/oracle/report.h"

namespace coda::oracle {

/// Copies of what an op reads and overwrites: InOut operands, and In operands that share bytes with an Out (in place).
/// By field name; rows without gaps. Device memory, freed with the capture.
struct Capture {
    std::map<std::string, std::shared_ptr<std::byte>> copies;
};

class Oracle {
  public:
    /// Owns a work space of `work_bytes` of device memory, and with the first product cuBLASLt's of 64 MiB. A query row
    /// of attention needs 8 bytes a key, next to a head's keys, values and their gradients in fp32.
    explicit Oracle(std::int64_t work_bytes = std::int64_t{256} << 20);
    ~Oracle();
    Oracle(const Oracle&) = delete;
    Oracle& operator=(const Oracle&) = delete;

    /// Throws Error, naming op and operand, where device memory for a copy runs out: AdamW's copies are 12 bytes a
    /// parameter, FinishCrossEntropy's are the exponentials.
    Capture capture(const Op& op, const Memory& memory, hopper::Stream stream = nullptr);

    /// Operands of bf16 storage, as hopper::prepare takes them. The first product loads cuBLASLt: throws Error naming
    /// libcublasLt where it is absent. Throws Error where a captured operand is missing from `before`, or where a
    /// single row does not fit the work space.
    Report check(const Op& op, const Memory& memory, const Capture& before, hopper::Stream stream = nullptr);

  private:
    struct Resources;
    std::unique_ptr<Resources> resources_;
};

}  // namespace coda::oracle
