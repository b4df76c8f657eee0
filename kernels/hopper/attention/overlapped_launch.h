// Launches of kernels that may start while their predecessor in the stream finishes. Host.
#pragma once

#include <cuda_runtime.h>

#include "kernels/hopper/launch.h"
#include "kernels/hopper/sm90/check.h"

namespace coda::hopper {

/// The kernel's threads must call ptx::wait_for_predecessor before they read or write what another kernel writes or
/// reads.
template <class Arguments>
void launch_overlapped(void (*kernel)(Arguments), dim3 blocks, int threads, int shared_bytes, Stream stream,
                       const Arguments& arguments) {
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = 1;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments));
}

}  // namespace coda::hopper
