// Candidates of `coda_bench gemm --tune`.
#pragma once

#include <vector>

#include "kernels/hopper/run.h"
#include "tools/bench/gemm_cases.h"

namespace coda::bench {

struct Candidate {
    const char* name;
    hopper::Launch launch;
};

/// Every tile configuration of the plain forward product `made` (program Linear) on its operands.
std::vector<Candidate> candidates(const GemmCase& made, const Memory& memory);

}  // namespace coda::bench
