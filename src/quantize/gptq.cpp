#include "src/quantize/gptq.h"

#include <algorithm>
#include <vector>

#include "kernels/math/int4.h"
#include "src/io/int4_matrix.h"

namespace coda {

namespace {

constexpr std::int64_t kTogether = 8;  // rows for which a row of the factor is loaded

void subtract(float* row, const float* factor, float times, std::int64_t first, std::int64_t end) {
#pragma omp simd
    for (std::int64_t j = first; j < end; ++j) row[j] -= times * factor[j];
}

/// Up to kTogether rows.
void round_rows(std::span<float> rows, std::int64_t cols, std::span<const float> factor, std::span<const float> weights,
                std::span<std::uint32_t> words, std::span<Bf16> scales) {
    const std::int64_t number = static_cast<std::int64_t>(rows.size()) / cols, groups = cols / kInt4Group;
    std::fill(words.begin(), words.end(), 0U);
    for (std::int64_t group = 0; group < groups; ++group) {
        const std::int64_t first = group * kInt4Group, end = first + kInt4Group;
        float errors[kTogether][kInt4Group];
        for (std::int64_t r = 0; r < number; ++r) {
            float* const row = rows.data() + r * cols;
            const Bf16 scale = int4_scale_of(std::span<const float>(row + first, kInt4Group),
                                             weights.subspan(static_cast<std::size_t>(first), kInt4Group));
            scales[static_cast<std::size_t>(r * groups + group)] = scale;
            for (std::int64_t k = first; k < end; ++k) {
                const int q = int4_of(row[k], scale);
                words[static_cast<std::size_t>((r * cols + k) / kInt4PerWord)] |=
                    static_cast<std::uint32_t>(q + kInt4Zero) << (4 * (k % kInt4PerWord));
                const float* const u = factor.data() + k * cols;
                const float error = (row[k] - static_cast<float>(q) * scale) / u[k];
                errors[r][k - first] = error;
                subtract(row, u, error, k + 1, end);
            }
        }
        for (std::int64_t k = first; k < end; ++k)
            for (std::int64_t r = 0; r < number; ++r)
                subtract(rows.data() + r * cols, factor.data() + k * cols, errors[r][k - first], end, cols);
    }
}

}  // namespace

void gptq_rows(std::span<float> rows, std::int64_t cols, std::span<const float> factor, std::span<std::uint32_t> words,
               std::span<Bf16> scales) {
    const std::int64_t number = static_cast<std::int64_t>(rows.size()) / cols;
    const auto part = [](auto span, std::int64_t first, std::int64_t count, std::int64_t columns) {
        return span.subspan(static_cast<std::size_t>(first * columns), static_cast<std::size_t>(count * columns));
    };
    std::vector<float> weights(static_cast<std::size_t>(cols));
    for (std::int64_t k = 0; k < cols; ++k) {
        const float u = factor[static_cast<std::size_t>(k * cols + k)];
        weights[static_cast<std::size_t>(k)] = 1 / (u * u);
    }
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t first = 0; first < number; first += kTogether) {
        const std::int64_t count = std::min(kTogether, number - first);
        round_rows(part(rows, first, count, cols), cols, factor, weights,
                   part(words, first, count, cols / kInt4PerWord), part(scales, first, count, cols / kInt4Group));
    }
}

}  // namespace coda
