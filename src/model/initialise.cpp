#include "src/model/initialise.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/math/random.h"

namespace coda {

namespace {

/// Two independent standard normal values (Box-Muller) from 128 random bits.
std::pair<double, double> normal_pair(const Random4& random) {
    const auto unit = [](std::uint32_t high, std::uint32_t low) {  // (0, 1], 53 bits
        const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 11;
        return (static_cast<double>(bits) + 1.0) * 0x1p-53;
    };
    const double radius = std::sqrt(-2.0 * std::log(unit(random.word[0], random.word[1])));
    const double angle = 2.0 * std::numbers::pi * unit(random.word[2], random.word[3]);
    return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

template <class T>
void initialise_weights(const ModelConfig& model, const ParameterLayout& layout, std::uint64_t seed,
                        std::span<T> master) {
    std::fill(master.begin(), master.end(), T(0));
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        const HfTensor& tensor = layout.tensors[t];
#pragma omp parallel for schedule(static)
        for (std::int64_t row = 0; row < tensor.rows; ++row) {
            T* target = master.data() + tensor.row_offset(row);
            if (!tensor.matrix) {
                std::fill_n(target, tensor.cols, T(1));
                continue;
            }
            for (std::int64_t col = 0; col < tensor.cols; ++col) {
                const auto element = static_cast<std::uint64_t>(row * tensor.cols + col);
                const auto [even, odd] = normal_pair(philox(seed, t, element / 2));
                target[col] = static_cast<T>(model.initializer_range * (element % 2 == 0 ? even : odd));
            }
        }
    }
}

template void initialise_weights<float>(const ModelConfig&, const ParameterLayout&, std::uint64_t, std::span<float>);
template void initialise_weights<double>(const ModelConfig&, const ParameterLayout&, std::uint64_t, std::span<double>);

}  // namespace coda
