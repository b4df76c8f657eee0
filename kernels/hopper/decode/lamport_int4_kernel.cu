#include "kernels/hopper/decode/kernel.cuh"
#include "kernels/hopper/decode/kernels.h"

namespace coda::hopper::decode {

Kernel lamport_int4_kernel(int head_dim, bool extended) { return instance_for<1, true>(head_dim, extended); }

}  // namespace coda::hopper::decode
