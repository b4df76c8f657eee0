// coda_bench gemm --tune: which tile, schedule, cluster and order of tiles is the quickest for a shape.
#pragma once

#include "tools/bench/gemm_measure.h"

namespace coda::bench {

/// Measures every tile configuration of the case's program, then every order of tiles with the quickest of them, in
/// turns with cuBLASLt; prints a line each, and the winner with the launch that the program would take by itself.
void tune(const GemmCase& made, const Turns& turns, oracle::CublasLt& cublas);

}  // namespace coda::bench
