#include "kernels/hopper/decode/kernel.cuh"
#include "kernels/hopper/decode/kernels.h"

namespace coda::hopper::decode {

Kernel ll_int4_kernel(int head_dim) {
    return head_dim == 64 ? fused_decode<64, false, true> : fused_decode<128, false, true>;
}

}  // namespace coda::hopper::decode
