#include "src/model/tensors/parameter_plan.h"

#include "kernels/core/error.h"
#include "kernels/core/integers.h"

namespace coda {

namespace {

constexpr std::int64_t kSegmentAlignment = 64;  // elements: 128 bytes in bf16, as TMA and 16-byte vectors like it

/// "q_proj.weight" -> "q_proj.bias"
std::string bias_name(std::string weight) {
    constexpr std::string_view kWeight = "weight";
    require(weight.ends_with(kWeight), weight, ": the name of a bias follows from that of a weight");
    return weight.replace(weight.size() - kWeight.size(), kWeight.size(), "bias");
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
    tensors_.insert(tensors_.end(), layer_vectors_.begin(), layer_vectors_.end());
    layer_vectors_.clear();
}

std::int64_t ParameterPlan::place(std::int64_t& end, std::int64_t count) {
    const std::int64_t offset = end;
    end = round_up(end + count, kSegmentAlignment);
    return offset;
}

std::size_t ParameterPlan::matrix(WeightMatrix declared) {
    declared.layer = layer_;
    declared.place.offset = place(matrix_end_, declared.place.count());
    const std::int64_t cols = declared.place.cols;
    for (const HfRows& part : declared.tensors) {
        tensors_.push_back({.name = prefix_ + part.name,
                            .rows = part.rows,
                            .cols = cols,
                            .offset = declared.place.offset + part.first * cols,
                            .order = part.order,
                            .head_dim = part.head_dim,
                            .deviation = declared.deviation});
    }
    if (declared.has_bias) place_bias(declared);
    matrices_.push_back(std::move(declared));
    return matrices_.size() - 1;
}

void ParameterPlan::put_norm_before(std::size_t matrix, const NormPlaces& norm) { matrices_.at(matrix).norm = norm; }

void ParameterPlan::place_bias(WeightMatrix& matrix) {
    matrix.bias = {place(norm_end_, matrix.place.rows), 1, matrix.place.rows};
    for (const HfRows& part : matrix.tensors) {
        vectors().push_back({.name = bias_name(prefix_ + part.name),
                             .rows = part.rows,
                             .cols = 1,
                             .kind = HfTensor::Kind::bias,
                             .offset = matrix.bias.offset + part.first,
                             .order = part.order,
                             .head_dim = part.head_dim});
    }
}

NormPlaces ParameterPlan::norm(std::int64_t width, const std::string& name, bool has_bias) {
    const auto placed = [&](const char* suffix, HfTensor::Kind kind) {
        const PackedTensor packed{place(norm_end_, width), 1, width};
        vectors().push_back(
            {.name = prefix_ + name + suffix, .rows = 1, .cols = width, .kind = kind, .offset = packed.offset});
        return packed;
    };
    NormPlaces places{placed(".weight", HfTensor::Kind::norm_weight)};
    if (has_bias) places.bias = placed(".bias", HfTensor::Kind::bias);
    return places;
}

PackedTensor ParameterPlan::head_norms(std::int64_t head_dim, std::initializer_list<const char*> names) {
    const auto rows = static_cast<std::int64_t>(names.size());
    const PackedTensor packed{place(norm_end_, rows * head_dim), rows, head_dim};
    std::int64_t offset = packed.offset;
    for (const char* name : names) {
        vectors().push_back({.name = prefix_ + name,
                             .rows = head_dim,
                             .cols = 1,
                             .kind = HfTensor::Kind::norm_weight,
                             .offset = offset,
                             .order = HfTensor::Order::rotary_half,
                             .head_dim = head_dim});
        offset += head_dim;
    }
    return packed;
}

}  // namespace coda
