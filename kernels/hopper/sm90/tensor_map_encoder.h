// The driver's function that makes tensor maps. Host.
#pragma once

#include <cuda.h>

namespace coda::hopper {

using TensorMapEncoder = decltype(&cuTensorMapEncodeTiled);

/// Found at run time: the program must start on machines that have no driver. Throws Error where a driver lacks it.
TensorMapEncoder tensor_map_encoder();

}  // namespace coda::hopper
