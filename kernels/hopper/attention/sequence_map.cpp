#include "kernels/hopper/attention/sequence_map.h"

#include "kernels/hopper/sm90/tensor_map.h"

namespace coda::hopper {

CUtensorMap sequence_map(const Memory& memory, const View& view, const char* operand, std::int64_t seq_len,
                         int box_rows) {
    std::byte* address = memory.address(view);
    const std::int64_t pitch = view.ld * size_of(view.dtype);
    require(reinterpret_cast<std::uintptr_t>(address) % 16 == 0 && pitch % 16 == 0, operand, " (", view.rows, " x ",
            view.cols, ") with row pitch ", pitch,
            " bytes is not aligned: address and pitch must be multiples of 16 bytes");
    const cuuint64_t extent[3] = {static_cast<cuuint64_t>(view.cols), static_cast<cuuint64_t>(seq_len),
                                  static_cast<cuuint64_t>(view.rows / seq_len)};
    const cuuint64_t stride[2] = {static_cast<cuuint64_t>(pitch), static_cast<cuuint64_t>(pitch * seq_len)};
    const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 1};
    const cuuint32_t element_stride[3] = {1, 1, 1};
    CUtensorMap map{};
    const CUresult status =
        tensor_map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, address, extent, stride, box, element_stride,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    require(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled refused ", operand, " (", view.rows, " x ", view.cols,
            ") with boxes of ", box_rows, " x 64: error ", static_cast<int>(status));
    return map;
}

}  // namespace coda::hopper
