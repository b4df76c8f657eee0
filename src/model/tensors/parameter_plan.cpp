#include "src/model/tensors/parameter_plan.h"

#include "kernels/core/error.h"
#include "kernels/core/integers.h"

namespace coda {

namespace {

constexpr std::int64_t kSegmentAlignment = 64;  // elements: 128 bytes in bf16, as TMA and 16-byte vectors like it

void require_no_bias(const WeightMatrix& matrix) {
    require(
        !matrix.bias, matrix.name,
        ": a projection that follows a norm cannot have a bias: the norm's backward pass takes (1/d) sum_j xhat_j "
        "dxhat_j from (1/d) sum z dz, which is the same only for z = (x rstd gamma) W^T; the op that makes dz would "
        "have to sum (z - bias) dz");
}

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
    layer_ = static_cast<int>(l);
    prefix_ = text("model.layers.", l, ".");
}

void ParameterPlan::leave_layer() {
    layer_ = -1;
    prefix_.clear();
    tensors_.insert(tensors_.end(), layer_norms_.begin(), layer_norms_.end());
    layer_norms_.clear();
}

std::int64_t ParameterPlan::place(std::int64_t& end, std::int64_t count) {
    const std::int64_t offset = end;
    end = round_up(end + count, kSegmentAlignment);
    return offset;
}

std::size_t ParameterPlan::matrix(WeightMatrix declared) {
    if (declared.norm) require_no_bias(declared);
    declared.layer = layer_;
    declared.place.offset = place(matrix_end_, declared.place.count());
    const std::int64_t cols = declared.place.cols;
    for (const HfRows& part : declared.tensors) {
        tensors_.push_back({.name = prefix_ + part.name,
                            .rows = part.rows,
                            .cols = cols,
                            .matrix = true,
                            .offset = declared.place.offset + part.first * cols,
                            .order = part.order,
                            .head_dim = part.head_dim});
    }
    matrices_.push_back(std::move(declared));
    return matrices_.size() - 1;
}

void ParameterPlan::put_norm_before(std::size_t matrix, const PackedTensor& norm) {
    require_no_bias(matrices_.at(matrix));
    matrices_[matrix].norm = norm;
}

PackedTensor ParameterPlan::norm(std::int64_t width, const char* name) {
    const PackedTensor packed{place(norm_end_, width), 1, width};
    (layer_ >= 0 ? layer_norms_ : tensors_)
        .push_back({.name = prefix_ + name, .rows = 1, .cols = width, .matrix = false, .offset = packed.offset});
    return packed;
}

}  // namespace coda
