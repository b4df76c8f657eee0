#include "src/model/blocks/parameter_plan.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/core/integers.h"

namespace coda {

namespace {

constexpr std::int64_t kSegmentAlignment = 64;  // elements: 128 bytes in bf16, as TMA and 16-byte vectors like it

}  // namespace

std::int64_t HfTensor::row_offset(std::int64_t row) const {
    switch (order) {
        case Order::plain: return offset + row * cols;
        case Order::even: return offset + 2 * row * cols;
        case Order::odd: return offset + (2 * row + 1) * cols;
        case Order::rotary_half: {
            const std::int64_t head = row / head_dim, in_head = row % head_dim, half = head_dim / 2;
            return offset + (head * head_dim + 2 * (in_head % half) + in_head / half) * cols;
        }
    }
    throw Error("unreachable row order");
}

void ParameterPlan::enter_layer(std::size_t l) {
    prefix_ = text("model.layers.", l, ".");
    in_layer_ = true;
}

void ParameterPlan::leave_layer() {
    prefix_.clear();
    in_layer_ = false;
    tensors_.insert(tensors_.end(), layer_norms_.begin(), layer_norms_.end());
    layer_norms_.clear();
}

PackedTensor ParameterPlan::place(std::int64_t& end, std::int64_t rows, std::int64_t cols) {
    const PackedTensor tensor{end, rows, cols};
    end = round_up(end + rows * cols, kSegmentAlignment);
    return tensor;
}

PackedTensor ParameterPlan::matrix(std::int64_t rows, std::int64_t cols, const std::vector<HfRows>& tensors) {
    const PackedTensor packed = place(matrix_end_, rows, cols);
    for (const HfRows& part : tensors) {
        tensors_.push_back({.name = prefix_ + part.name,
                            .rows = part.rows,
                            .cols = cols,
                            .matrix = true,
                            .offset = packed.offset + part.first * cols,
                            .order = part.order,
                            .head_dim = part.head_dim});
    }
    return packed;
}

PackedTensor ParameterPlan::norm(std::int64_t width, const char* name) {
    const PackedTensor packed = place(norm_end_, 1, width);
    (in_layer_ ? layer_norms_ : tensors_)
        .push_back({.name = prefix_ + name, .rows = 1, .cols = width, .matrix = false, .offset = packed.offset});
    return packed;
}

PackedTensor ParameterPlan::projection(const Projection& projection, const PackedTensor& norm) {
    return tied_projection(projection, matrix(projection.rows, projection.cols, projection.tensors), norm);
}

PackedTensor ParameterPlan::tied_projection(const Projection& projection, const PackedTensor& matrix,
                                            const PackedTensor& norm) {
    require(
        !projection.bias, projection.name,
        ": a projection that follows a norm cannot have a bias: the norm's backward pass takes (1/d) sum_j xhat_j "
        "dxhat_j from (1/d) sum z dz, which is the same for z = (x rstd gamma) W^T alone; the op that makes dz would "
        "have to sum (z - bias) dz");
    folds_.push_back({matrix.offset, matrix.rows, matrix.cols, norm.offset});
    return matrix;
}

std::vector<NormFold> ParameterPlan::folds() const {
    std::vector<NormFold> sorted = folds_;
    std::sort(sorted.begin(), sorted.end(), [](const NormFold& a, const NormFold& b) { return a.first < b.first; });
    return sorted;
}

}  // namespace coda
