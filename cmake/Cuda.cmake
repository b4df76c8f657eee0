# The CUDA language and toolkit for the Hopper kernels.
include_guard()

enable_language(CUDA)
find_package(CUDAToolkit 12.4 REQUIRED)

# Every CUDA target: only sm_90a machine code, and the runtime linked statically, so that a binary starts without a driver.
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know that nvcc 13 has C++20
endif()
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
