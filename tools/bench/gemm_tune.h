// coda_bench gemm --tune: which tile, warp specialization, cluster and raster is the fastest for a shape.
#pragma once

#include "tools/bench/gemm_measure.h"

namespace coda::bench {

/// Measures every tile configuration of the case's program, then every raster with the fastest of them, in turns with
/// cuBLASLt. Prints one line each, and the winner next to the launch that the program would choose itself.
void tune(const GemmCase& made, const Turns& turns, oracle::CublasLt& cublas);

}  // namespace coda::bench
