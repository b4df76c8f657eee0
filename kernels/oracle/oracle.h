// The oracle: computes one op's results again from live tensors by an independent path, and reports the difference.
//
//   const Capture before = oracle.capture(op, memory, stream);   // what the op is about to overwrite
//   launch(stream);
//   const Report report = oracle.check(op, memory, before, stream);
//   within_tolerance(op, report), line_of(label, op, report)      // tolerance.h
//
// cuBLASLt runs the GEMMs (of the GEMM ops, and of attention for each query head), with fp32 accumulation and fp32
// output. Everything else is the op's formula, written out plainly on the device with one thread per element; it rounds
// only where the formula rounds. Every op is checked, and every element that it writes: intermediate results that
// exceed the work space are computed in bands of rows.
//
// Both calls synchronise the stream. Never part of a training step: a diagnostic (--oracle) and a test.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/core/memory.h"
#include "kernels/hopper/sm90/launch.h"
#include "kernels/ops.h"
#include "kernels/oracle/capture.h"
#include "kernels/oracle/report.h"

namespace coda::oracle {

class Oracle {
  public:
    /// Owns a work space of `work_bytes` of device memory, and from the first GEMM on cuBLASLt's of 64 MiB. One query
    /// row of attention needs 8 bytes per key, in addition to a head's keys, values and their gradients in fp32.
    explicit Oracle(std::int64_t work_bytes = std::int64_t{256} << 20);
    ~Oracle();
    Oracle(const Oracle&) = delete;
    Oracle& operator=(const Oracle&) = delete;

    /// Throws Error, naming op and operand, where device memory for a copy runs out. AdamW's copies take 12 bytes per
    /// parameter; FinishCrossEntropy's copy has the size of the exponentials.
    Capture capture(const Op& op, const Memory& memory, hopper::Stream stream = nullptr);

    /// Operands have bf16 storage, as hopper::prepare takes them. The first GEMM loads cuBLASLt: throws Error, naming
    /// libcublasLt, where it is absent. Throws Error where an operand that must be captured is missing from `before`,
    /// or where a single row does not fit the work space.
    Report check(const Op& op, const Memory& memory, const Capture& before, hopper::Stream stream = nullptr);

  private:
    struct Resources;
    std::unique_ptr<Resources> resources_;
};

}  // namespace coda::oracle
