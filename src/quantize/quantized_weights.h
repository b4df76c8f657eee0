// Master weights whose layers' matrices are rounded to 4-bit integers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/model/master_weights.h"
#include "src/quantize/input_products.h"

namespace coda {

class QuantizedWeights : public MasterWeights {
  public:
    /// Rounds the layers' matrices of `source` to nearest or, with `products`, by GPTQ, a matrix at a time; what is
    /// used of the products is freed. Matrices that are 4-bit integers already stay what they are, and so do those
    /// whose columns are no multiple of kInt4Group. said(line): after every layer. `layout` and `source` must outlive
    /// it.
    QuantizedWeights(const ParameterLayout& layout, const MasterWeights& source, InputProducts* products,
                     const std::function<void(const std::string&)>& said);

    void read(std::int64_t first, std::span<float> out) const override;
    void read_row(std::size_t tensor, std::int64_t row, std::span<float> out) const override;
    bool is_int4(std::size_t tensor) const override { return rounded(tensor) || source_.is_int4(tensor); }
    void read_int4_row(std::size_t tensor, std::int64_t row, std::span<std::uint32_t> words,
                       std::span<Bf16> scales) const override;

  private:
    struct Codes {
        std::vector<std::uint32_t> words;
        std::vector<Bf16> scales;
    };
    bool rounded(std::size_t tensor) const { return !codes_[tensor].words.empty(); }
    void quantize(std::size_t tensor, std::span<const float> factor);
    /// The values of a rounded tensor's row from `column` on.
    void unpack(std::size_t tensor, std::int64_t row, std::int64_t column, std::span<float> out) const;

    const ParameterLayout& layout_;
    const MasterWeights& source_;
    std::vector<Codes> codes_;  // of the layout's tensors; empty for those that stay
};

}  // namespace coda
