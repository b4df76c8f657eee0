#include "kernels/hopper/decode/kernel.cuh"
#include "kernels/hopper/decode/kernels.h"

namespace coda::hopper::decode {

Kernel shared_int4_kernel(int head_dim) { return shared_instance_for<true>(head_dim); }

}  // namespace coda::hopper::decode
