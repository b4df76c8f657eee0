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

/// Elements [first, first + row.size()) of tensor t: element i is one half of pair i / 2.
template <class T>
void fill_row(std::span<T> row, std::uint64_t first, std::uint64_t seed, std::uint64_t t, double range) {
    const std::uint64_t end = first + row.size();
    for (std::uint64_t pair = first / 2; 2 * pair < end; ++pair) {
        const auto [even, odd] = normal_pair(philox(seed, t, pair));
        if (2 * pair >= first) row[2 * pair - first] = static_cast<T>(range * even);
        if (2 * pair + 1 < end) row[2 * pair + 1 - first] = static_cast<T>(range * odd);
    }
}

}  // namespace

template <class T>
void initialise_weights(const ModelConfig& model, const ParameterLayout& layout, std::uint64_t seed,
                        std::span<T> master) {
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < master.size(); ++i) master[i] = T(0);
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        const HfTensor& tensor = layout.tensors[t];
#pragma omp parallel for schedule(static)
        for (std::int64_t row = 0; row < tensor.rows; ++row) {
            const std::span<T> target(master.data() + tensor.row_offset(row), static_cast<std::size_t>(tensor.cols));
            if (tensor.matrix) {
                fill_row(target, static_cast<std::uint64_t>(row * tensor.cols), seed, t, model.initializer_range);
            } else {
                std::fill(target.begin(), target.end(), T(1));
            }
        }
    }
}

template void initialise_weights<float>(const ModelConfig&, const ParameterLayout&, std::uint64_t, std::span<float>);
template void initialise_weights<double>(const ModelConfig&, const ParameterLayout&, std::uint64_t, std::span<double>);

}  // namespace coda
