// A GEMM case against cuBLASLt's bare GEMM of the same shape and output type, in turns.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cases/device_buffers.h"
#include "kernels/cases/op_cases.h"
#include "kernels/hopper/run.h"
#include "kernels/oracle/cublaslt.h"

namespace coda::bench {

using namespace cases;

struct Turns {
    double warm_up = 2.0;  // seconds
    double block = 0.1;    // seconds of launches per side
    int blocks = 5;        // pairs
};

/// Milliseconds and joules per launch (medians of the blocks), the medians of the paired ratios, and the lowest and
/// highest ratio of times. Joules are 0 where they are unknown: without NVML's counter, and in blocks shorter than
/// kEnergyBlock.
struct Measured {
    double ms = 0, cublas_ms = 0, ratio = 0;
    double lowest_ratio = 0, highest_ratio = 0;
    double joules = 0, cublas_joules = 0, energy_ratio = 0;
};

inline constexpr double kEnergyBlock = 1;  // seconds

/// " | joules, watts, energy ratio" for a table; empty where joules are unknown.
std::string energy_column(const Measured& measured);

/// The case's bare GEMM, with its majors, operand and output types.
oracle::Product bare_product(const GemmCase& made, const Memory& memory, void* out);

/// The case's operands on the device, in enough copies to exceed L2 together, so that no launch finds them there.
class Contest {
  public:
    Contest(const GemmCase& made, oracle::CublasLt& cublas);
    ~Contest();
    Contest(const Contest&) = delete;
    Contest& operator=(const Contest&) = delete;

    /// One launch per copy. Throws Error where the choice does not fit the case.
    std::vector<hopper::Launch> prepare(const hopper::Request& choice = {}) const;

    /// Every tile configuration of the case's program, in the order of Request::candidate.
    std::vector<hopper::TileConfig> tiles() const;

    /// Parts into which the choice cuts K.
    std::int64_t parts(const hopper::Request& choice) const;

    /// Runs both sides until the clocks have settled; once per contest is enough.
    void warm_up(const std::vector<hopper::Launch>& launches, const Turns& turns) const;

    /// Measures each side in turns with cuBLAS: side, cuBLAS, next side, cuBLAS, ...
    std::vector<Measured> measure(const std::vector<std::vector<hopper::Launch>>& sides, const Turns& turns) const;

    /// Enqueues launches of at least `seconds` without waiting for them.
    void enqueue(const std::vector<hopper::Launch>& launches, double seconds) const;

  private:
    int count(double seconds) const;
    int count_per_block(const Turns& turns) const;

    GemmCase made_;
    std::vector<std::unique_ptr<DeviceBuffers>> buffers_;
    std::vector<void*> outputs_;
    std::vector<hopper::Launch> cublas_;
    double cublas_ms_ = 0;  // approximate
};

}  // namespace coda::bench
