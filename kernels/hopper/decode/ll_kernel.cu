#include "kernels/hopper/decode/kernel.cuh"
#include "kernels/hopper/decode/kernels.h"

namespace coda::hopper::decode {

Kernel ll_kernel(int head_dim) {
    return head_dim == 64 ? fused_decode<64, false, false> : fused_decode<128, false, false>;
}

}  // namespace coda::hopper::decode
