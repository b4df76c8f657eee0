#include "kernels/hopper/decode/kernel.cuh"
#include "kernels/hopper/decode/kernels.h"

namespace coda::hopper::decode {

Kernel shared_kernel(int head_dim) { return shared_instance_for<false>(head_dim); }

}  // namespace coda::hopper::decode
