#include "tests/oracle/adamw.h"

#include <cmath>
#include <cstddef>

namespace coda::textbook {

double global_norm(const Weights& tensors) {
    double sum = 0;
    for (const auto& entry : tensors)
        for (const double value : entry.second) sum += value * value;
    return std::sqrt(sum);
}

double AdamW::step(Weights& weights, const Weights& gradients, double learning_rate) {
    const double norm = global_norm(gradients);
    const bool clips = settings_.max_grad_norm > 0 && norm > settings_.max_grad_norm;
    const double clip = clips ? settings_.max_grad_norm / norm : 1;

    steps_ += 1;
    const double correction1 = 1 - std::pow(settings_.beta1, static_cast<double>(steps_));
    const double correction2 = 1 - std::pow(settings_.beta2, static_cast<double>(steps_));
    for (auto& [name, values] : weights) {
        const std::vector<double>& gradient = gradients.at(name);
        std::vector<double>& m = first_moment_[name];
        std::vector<double>& v = second_moment_[name];
        m.resize(values.size());
        v.resize(values.size());
        const double decay = is_norm(name) || is_bias(name) ? 0 : settings_.weight_decay;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double g = clip * gradient.at(i);
            m[i] = settings_.beta1 * m[i] + (1 - settings_.beta1) * g;
            v[i] = settings_.beta2 * v[i] + (1 - settings_.beta2) * g * g;
            const double direction = m[i] / correction1 / (std::sqrt(v[i] / correction2) + settings_.eps);
            values[i] -= learning_rate * (decay * values[i] + direction);
        }
    }
    return norm;
}

}  // namespace coda::textbook
