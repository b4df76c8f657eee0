#include "src/model/initialise.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

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

/// Elements [first, first + part.size()) of tensor t: element i is one half of pair i / 2.
void fill_matrix(std::span<float> part, std::uint64_t first, std::uint64_t seed, std::uint64_t t, double range) {
    const std::uint64_t end = first + part.size();
    for (std::uint64_t pair = first / 2; 2 * pair < end; ++pair) {
        const auto [even, odd] = normal_pair(philox(seed, t, pair));
        if (2 * pair >= first) part[2 * pair - first] = static_cast<float>(range * even);
        if (2 * pair + 1 < end) part[2 * pair + 1 - first] = static_cast<float>(range * odd);
    }
}

}  // namespace

void InitialWeights::fill(std::size_t t, std::int64_t first, std::span<float> part) const {
    const HfTensor& tensor = layout_.tensors[t];
    if (!tensor.is_matrix())
        return std::fill(part.begin(), part.end(), tensor.kind == HfTensor::Kind::bias ? 0.0f : 1.0f);
    fill_matrix(part, static_cast<std::uint64_t>(first), seed_, t, range_ * tensor.deviation);
}

void InitialWeights::read(std::int64_t first, std::span<float> out) const {
    struct Filled {
        std::size_t tensor;
        std::int64_t first;
        std::span<float> part;
    };
    std::vector<Filled> parts;  // the threads share them
    std::fill(out.begin(), out.end(), 0.0f);
    for_each_row_part(layout_, first, static_cast<std::int64_t>(out.size()),
                      [&](std::size_t t, std::int64_t row, const RowPart& part) {
                          parts.push_back({t, row * layout_.tensors[t].cols + part.column, part.of(out)});
                      });
#pragma omp parallel for schedule(static, 1)  // matrices and norms cost differently
    for (const Filled& filled : parts) fill(filled.tensor, filled.first, filled.part);
}

void InitialWeights::read_row(std::size_t tensor, std::int64_t row, std::span<float> out) const {
    fill(tensor, row * layout_.tensors[tensor].cols, out);
}

}  // namespace coda
