#include "kernels/hopper/sm90/tensor_map.h"

#include <cstdint>

#include "kernels/hopper/sm90/check.h"

namespace coda::hopper {

namespace {

CUtensorMapSwizzle swizzle_of(std::int64_t bytes) {
    switch (bytes) {
        case 32: return CU_TENSOR_MAP_SWIZZLE_32B;
        case 64: return CU_TENSOR_MAP_SWIZZLE_64B;
        case 128: return CU_TENSOR_MAP_SWIZZLE_128B;
        default: throw Error(text("no swizzle spans a box row of ", bytes, " bytes"));
    }
}

}  // namespace

TensorMapEncoder tensor_map_encoder() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
#else
    CUDA_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found));
#endif
    require(found == cudaDriverEntryPointSuccess && function != nullptr,
            "the CUDA driver has no cuTensorMapEncodeTiled; Hopper kernels need a driver of CUDA 12.0 or later");
    return reinterpret_cast<TensorMapEncoder>(function);
}

CUtensorMap tensor_map(const Memory& memory, const View& view, int box_rows, int box_columns) {
    require(view.dtype == DType::bf16 || view.dtype == DType::f32, "a tensor map of ", name_of(view.dtype),
            " was asked for; Hopper kernels move bf16 and f32");
    std::byte* address = memory.address(view);
    const std::int64_t pitch = view.ld * size_of(view.dtype);
    require(reinterpret_cast<std::uintptr_t>(address) % 16 == 0 && pitch % 16 == 0, "a ", view.rows, " x ", view.cols,
            " operand with row pitch ", pitch,
            " bytes is not aligned: address and pitch must be multiples of 16 bytes");

    const auto type = view.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    const cuuint64_t extent[2] = {static_cast<cuuint64_t>(view.cols), static_cast<cuuint64_t>(view.rows)};
    const cuuint64_t stride[1] = {static_cast<cuuint64_t>(pitch)};
    const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)};
    const cuuint32_t element_stride[2] = {1, 1};
    CUtensorMap map{};
    const CUresult status =
        tensor_map_encoder()(&map, type, 2, address, extent, stride, box, element_stride, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             swizzle_of(box_columns * size_of(view.dtype)), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    require(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled refused a ", view.rows, " x ", view.cols, " ",
            name_of(view.dtype), " operand with boxes of ", box_rows, " x ", box_columns, ": error ",
            static_cast<int>(status));
    return map;
}

}  // namespace coda::hopper
