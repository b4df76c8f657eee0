// Initial weights, as Hugging Face makes them.
#pragma once

#include <cstdint>
#include <span>

#include "src/model/master_weights.h"

namespace coda {

/// Matrices N(0, initializer_range times HfTensor::deviation), norm weights 1, biases and padding 0. Element i of
/// Hugging Face tensor t depends only on (seed, t, i), so neither packing nor padding nor the part that is read changes
/// the model. `layout` must outlive it.
class InitialWeights : public MasterWeights {
  public:
    InitialWeights(const ModelConfig& model, const ParameterLayout& layout, std::uint64_t seed)
        : range_(model.initializer_range), layout_(layout), seed_(seed) {}

    void read(std::int64_t first, std::span<float> out) const override;
    void read_row(std::size_t tensor, std::int64_t row, std::span<float> out) const override;

  private:
    /// Elements of a tensor from `first` on.
    void fill(std::size_t tensor, std::int64_t first, std::span<float> part) const;

    double range_;
    const ParameterLayout& layout_;
    std::uint64_t seed_;
};

}  // namespace coda
