#include <cmath>
#include <numbers>

#include "src/model/schedules.h"

namespace coda {

namespace {

/// Angle per position of pair i, after the rescaling of its frequency.
double pair_frequency(const ModelConfig& model, std::int64_t pair) {
    const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(model.head_dim);
    const double frequency = std::pow(model.rope_theta, exponent);
    if (!model.rope_scaling) return frequency;
    const RopeScaling& scaling = *model.rope_scaling;
    if (scaling.type == RopeType::linear) return frequency / scaling.factor;
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    const auto original = static_cast<double>(scaling.original_max_position_embeddings);
    if (wavelength < original / scaling.high_freq_factor) return frequency;
    if (wavelength > original / scaling.low_freq_factor) return frequency / scaling.factor;
    const double t =
        (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
    return frequency * (1.0 - t) / scaling.factor + frequency * t;
}

}  // namespace

std::vector<double> rope_table(const ModelConfig& model, std::int64_t positions) {
    const std::int64_t hd = model.head_dim;
    std::vector<double> table(static_cast<std::size_t>(positions * hd));
    if (model.position_embeddings == PositionEmbeddings::learned) {  // turned by nothing, to the bit
        for (std::size_t i = 0; i < table.size(); i += 2) table[i] = 1;
        return table;
    }
    for (std::int64_t pair = 0; pair < hd / 2; ++pair) {
        const double frequency = pair_frequency(model, pair);
        for (std::int64_t position = 0; position < positions; ++position) {
            const double angle = static_cast<double>(position) * frequency;
            const auto at = static_cast<std::size_t>(position * hd + 2 * pair);
            table[at] = std::cos(angle);
            table[at + 1] = std::sin(angle);
        }
    }
    return table;
}

}  // namespace coda
