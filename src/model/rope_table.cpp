#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/model/schedules.h"

namespace coda {

namespace {

/// The pair, a fraction, that turns so many times within yarn's original context.
double pair_that_turns(const ModelConfig& model, double times) {
    const auto context = static_cast<double>(model.rope_scaling->original_max_position_embeddings);
    return static_cast<double>(model.head_dim) * std::log(context / (2.0 * std::numbers::pi * times)) /
           (2.0 * std::log(model.rope_theta));
}

/// How far the frequency of a pair is slowed by yarn: from 0, not at all, to 1, by the whole factor.
double yarn_ramp(const ModelConfig& model, std::int64_t pair) {
    const RopeScaling& scaling = *model.rope_scaling;
    double low = pair_that_turns(model, scaling.beta_fast), high = pair_that_turns(model, scaling.beta_slow);
    if (scaling.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(model.head_dim - 1));
    if (low == high) high += 0.001;
    return std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
}

/// What cos and sin are multiplied by.
double amplitude(const ModelConfig& model) {
    if (!model.rope_scaling || model.rope_scaling->type != RopeType::yarn) return 1;
    const RopeScaling& scaling = *model.rope_scaling;
    if (scaling.attention_factor) return *scaling.attention_factor;
    const auto of = [&](double scale) { return 0.1 * scale * std::log(scaling.factor) + 1.0; };
    const double mscale = scaling.mscale.value_or(0), all_dim = scaling.mscale_all_dim.value_or(0);
    return mscale != 0 && all_dim != 0 ? of(mscale) / of(all_dim) : of(1);
}

/// Angle per position of pair i, after the rescaling of its frequency.
double pair_frequency(const ModelConfig& model, std::int64_t pair) {
    const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(model.head_dim);
    const double frequency = std::pow(model.rope_theta, exponent);
    if (!model.rope_scaling) return frequency;
    const RopeScaling& scaling = *model.rope_scaling;
    if (scaling.type == RopeType::linear) return frequency / scaling.factor;
    if (scaling.type == RopeType::yarn) {
        const double ramp = yarn_ramp(model, pair);
        return frequency * (1.0 - ramp) + frequency / scaling.factor * ramp;
    }
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
    const double factor = amplitude(model);
    for (std::int64_t pair = 0; pair < hd / 2; ++pair) {
        const double frequency = pair_frequency(model, pair);
        for (std::int64_t position = 0; position < positions; ++position) {
            const double angle = static_cast<double>(position) * frequency;
            const auto at = static_cast<std::size_t>(position * hd + 2 * pair);
            table[at] = factor * std::cos(angle);
            table[at + 1] = factor * std::sin(angle);
        }
    }
    return table;
}

}  // namespace coda
