// Launches of kernels that may start while their predecessor in the stream finishes. Host.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/launch.h"

namespace coda::hopper {

/// The kernel's threads must call ptx::wait_on_dependencies before they read or write what another kernel writes or
/// reads. Throws Error when the launch is refused.
template <class... Parameters>
void launch_overlapped(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, int shared_bytes, cudaStream_t stream,
                       const std::type_identity_t<Parameters>&... arguments) {
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = 1;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace coda::hopper
