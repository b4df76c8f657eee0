#include "kernels/hopper/decode/kernel.cuh"
#include "kernels/hopper/decode/kernels.h"

namespace coda::hopper::decode {

Kernel wide_int4_kernel(int head_dim, bool extended) { return instance_for<2, true>(head_dim, extended); }

}  // namespace coda::hopper::decode
