#include "kernels/hopper/decode/kernel.cuh"
#include "kernels/hopper/decode/kernels.h"

namespace coda::hopper::decode {

Kernel lamport_kernel(int head_dim, bool extended) { return instance_for<1, false>(head_dim, extended); }

}  // namespace coda::hopper::decode
