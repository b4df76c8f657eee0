#include "kernels/hopper/sm90/block_map.h"

#include <array>

#include "kernels/core/error.h"
#include "kernels/hopper/sm90/tensor_map_encoder.h"

namespace coda::hopper {

namespace {

/// `blocks` of `block_columns` columns, one behind the other.
CUtensorMap encode(const WeightBlocks& of, std::int64_t block_columns, std::int64_t blocks, int box_columns,
                   int box_rows, int box_blocks) {
    const std::array extent{static_cast<cuuint64_t>(block_columns), static_cast<cuuint64_t>(of.rows),
                            static_cast<cuuint64_t>(blocks)};
    const std::array stride{static_cast<cuuint64_t>(2 * of.ld), static_cast<cuuint64_t>(2 * block_columns)};
    const std::array box{static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows),
                         static_cast<cuuint32_t>(box_blocks)};
    const std::array<cuuint32_t, 3> element_stride{1, 1, 1};
    CUtensorMap map{};
    // No L2 promotion: L2 would fetch 256 bytes for a box row of 128, and decoding takes up to 5% longer then
    // (docs/ATTEMPTS.md).
    const CUresult status = tensor_map_encoder()(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<Bf16*>(of.weights), extent.data(), stride.data(),
        box.data(), element_stride.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    require(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled refused weights (", of.rows, " x ", of.columns, ", rows ",
            of.ld, " elements apart) with boxes of ", box_rows, " rows and ", box_blocks, " blocks of ", box_columns,
            " columns: error ", static_cast<int>(status));
    return map;
}

}  // namespace

CUtensorMap block_map(const WeightBlocks& of, int box_rows, int block_columns, int box_blocks) {
    require(of.columns % block_columns == 0, "weights of ", of.columns, " columns are not whole blocks of ",
            block_columns);
    return encode(of, block_columns, of.columns / block_columns, block_columns, box_rows, box_blocks);
}

CUtensorMap row_map(const WeightBlocks& of, int box_rows, int block_columns) {
    return encode(of, of.columns, 1, block_columns, box_rows, 1);
}

}  // namespace coda::hopper
