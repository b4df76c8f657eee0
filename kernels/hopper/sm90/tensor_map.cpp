#include "kernels/hopper/sm90/tensor_map.h"

#include <array>

#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/limits.h"
#include "kernels/hopper/sm90/tensor_map_encoder.h"

namespace coda::hopper {

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

namespace {

CUtensorMapSwizzle swizzle_of(std::int64_t bytes) {
    switch (bytes) {
        case 32: return CU_TENSOR_MAP_SWIZZLE_32B;
        case 64: return CU_TENSOR_MAP_SWIZZLE_64B;
        case kPanelRowBytes: return CU_TENSOR_MAP_SWIZZLE_128B;
        default: throw Error(text("no swizzle spans a box row of ", bytes, " bytes"));
    }
}

/// With rank 3, `view` is a batch of sequences of `seq_len` rows, and a box lies in one of them; with rank 2, it is one
/// sequence.
CUtensorMap encode(const Memory& memory, const View& view, const char* operand, unsigned rank, std::int64_t seq_len,
                   int box_rows, int box_columns, L2Fetch fetch) {
    require(view.dtype == DType::bf16 || view.dtype == DType::f32 || is_f8(view.dtype), operand, " (", view.rows, " x ",
            view.cols, ") is ", name_of(view.dtype), "; Hopper kernels move bf16, f32 and FP8");
    std::byte* address = memory.address(view);
    const std::int64_t pitch = view.ld * size_of(view.dtype);
    require(reinterpret_cast<std::uintptr_t>(address) % 16 == 0 && pitch % 16 == 0, operand, " (", view.rows, " x ",
            view.cols, ") with row pitch ", pitch,
            " bytes is not aligned: address and pitch must be multiples of 16 bytes");

    const auto type = view.dtype == DType::bf16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                      : view.dtype == DType::f32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                                 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
    const std::array extent{static_cast<cuuint64_t>(view.cols), static_cast<cuuint64_t>(seq_len),
                            static_cast<cuuint64_t>(rank == 3 ? view.rows / seq_len : 1)};
    const std::array stride{static_cast<cuuint64_t>(pitch), static_cast<cuuint64_t>(pitch * seq_len)};
    const std::array<cuuint32_t, 3> box{static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows), 1};
    const std::array<cuuint32_t, 3> element_stride{1, 1, 1};
    CUtensorMap map{};
    const CUresult status = tensor_map_encoder()(
        &map, type, rank, address, extent.data(), stride.data(), box.data(), element_stride.data(),
        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(box_columns * size_of(view.dtype)),
        fetch == L2Fetch::wide ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    require(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled refused ", operand, " (", view.rows, " x ", view.cols, " ",
            name_of(view.dtype), ") with boxes of ", box_rows, " x ", box_columns, ": error ",
            static_cast<int>(status));
    return map;
}

}  // namespace

CUtensorMap tensor_map(const Memory& memory, const View& view, int box_rows, int box_columns, L2Fetch fetch) {
    return encode(memory, view, "an operand", 2, view.rows, box_rows, box_columns, fetch);
}

CUtensorMap sequence_map(const Memory& memory, const View& view, const char* operand, std::int64_t seq_len,
                         int box_rows) {
    constexpr int kBoxColumns = kPanelRowBytes / 2;  // of bf16
    return encode(memory, view, operand, 3, seq_len, box_rows, kBoxColumns, L2Fetch::wide);
}

}  // namespace coda::hopper
