// Master weights that a test holds in memory.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "src/model/master_weights.h"

namespace coda::test {

class HostWeights : public MasterWeights {
  public:
    HostWeights(const ParameterLayout& layout, std::vector<float> values)
        : layout_(layout), values_(std::move(values)) {}

    void read(std::int64_t first, std::span<float> out) const override {
        std::copy_n(values_.begin() + first, out.size(), out.begin());
    }
    void read_row(std::size_t tensor, std::int64_t row, std::span<float> out) const override {
        read(layout_.tensors[tensor].row_offset(row), out);
    }

  private:
    const ParameterLayout& layout_;
    std::vector<float> values_;
};

}  // namespace coda::test
