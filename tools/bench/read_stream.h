// The speed at which the GPU at hand reads memory when it does nothing else: what decoding can reach at best.
#pragma once

namespace coda::bench {

/// TB/s of bulk copies into shared memory by all SMs, the median of several passes over 4 GiB of random numbers, which
/// it allocates. Throws Error without the memory.
double read_stream_tb_s();

}  // namespace coda::bench
