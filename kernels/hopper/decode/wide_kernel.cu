#include "kernels/hopper/decode/kernel.cuh"
#include "kernels/hopper/decode/kernels.h"

namespace coda::hopper::decode {

Kernel wide_kernel(int head_dim, bool extended) { return instance_for<2, false>(head_dim, extended); }

}  // namespace coda::hopper::decode
