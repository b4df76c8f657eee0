// Safetensors files of floats, as a test gives them.
#pragma once

#include <functional>
#include <vector>

#include "src/io/safetensors.h"

namespace coda::test {

using FloatRows = std::function<void(std::size_t index, std::int64_t row, std::span<float> out)>;

/// Elements [row * out.size(), (row + 1) * out.size()) of a tensor, stored as `dtype`.
inline RowSource stored(std::string_view dtype, const FloatRows& rows) {
    return [dtype, rows](std::size_t index, std::int64_t row, std::span<std::byte> out) {
        std::vector<float> values(out.size() / (dtype == "BF16" ? 2 : 4));
        rows(index, row, values);
        store_floats(dtype, values, out);
    };
}
inline std::vector<TensorSpec> as(std::string_view dtype, std::span<const TensorSpec> tensors) {
    std::vector<TensorSpec> changed(tensors.begin(), tensors.end());
    for (TensorSpec& tensor : changed) tensor.dtype = dtype;
    return changed;
}
inline void write_floats(const std::filesystem::path& path, std::span<const TensorSpec> tensors, std::string_view dtype,
                         const FloatRows& rows) {
    write_safetensors(path, as(dtype, tensors), stored(dtype, rows));
}

}  // namespace coda::test
