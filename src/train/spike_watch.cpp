#include "src/train/spike_watch.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kernels/core/error.h"
#include "src/core/median.h"

namespace coda {

namespace {

/// The shortest digits that give the number back, and a space.
template <class Number>
void append(std::string& line, Number value) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    if (!line.empty()) line += ' ';
    line.append(digits.data(), end.ptr);
}

template <class Number>
std::vector<Number> numbers_of(const nlohmann::json& state, const char* key) {
    const auto found = state.find(key);
    require(found != state.end() && found->is_string(), "the checkpoint's spike_watch.", key,
            " is not a string of numbers");
    const auto& line = found->template get_ref<const std::string&>();
    std::vector<Number> numbers;
    for (const char *at = line.data(), *end = at + line.size(); at < end;) {
        Number value{};
        const auto parsed = std::from_chars(at, end, value);
        const bool whole = parsed.ec == std::errc() && (parsed.ptr == end || *parsed.ptr == ' ');
        require(whole, "the checkpoint's spike_watch.", key, ": entry ", numbers.size() + 1, " is not a number");
        numbers.push_back(value);
        at = parsed.ptr + 1;
    }
    return numbers;
}

std::string short_number(double value) {
    std::array<char, 32> digits{};
    std::snprintf(digits.data(), digits.size(), "%.3g", value);
    return digits.data();
}

}  // namespace

bool SpikeScores::spike() const { return loss > SpikeWatch::kSpike || norm > SpikeWatch::kSpike; }

SpikeWatch::Usual SpikeWatch::usual_of(std::vector<double> values, double least) {
    constexpr double kToDeviation = 1.482602218505602;  // of normal numbers: 1 / the third quartile of N(0, 1)
    const double median = median_of(values);
    for (double& value : values) value = std::abs(value - median);
    return {.median = median, .spread = std::max(least, kToDeviation * median_of(values))};
}

template <class Value>
std::vector<double> SpikeWatch::before(std::int64_t step, const Value& value) const {
    std::vector<double> values;
    for (auto entry = observed_.rbegin(); entry != observed_.rend() && values.size() < kWindow; ++entry) {
        if (entry->step <= step - 2) values.push_back(value(*entry));
    }
    if (values.size() < kWarmUp) values.clear();
    return values;
}

double SpikeWatch::drop_above(std::int64_t step) const {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    if (skip_spikes_ == 0) return kNone;
    const std::vector<double> logs = before(step, [](const Observed& entry) { return std::log(entry.norm); });
    if (logs.empty()) return kNone;
    const Usual usual = usual_of(logs, kLeastNorm);
    return std::exp(usual.median + skip_spikes_ * usual.spread);
}

SpikeScores SpikeWatch::observe(std::int64_t step, double loss, double norm) {
    SpikeScores scores;
    if (!std::isfinite(loss) || !std::isfinite(norm) || norm <= 0) return scores;
    const std::vector<double> losses = before(step, [](const Observed& entry) { return entry.loss; });
    const std::vector<double> logs = before(step, [](const Observed& entry) { return std::log(entry.norm); });
    if (!losses.empty()) {
        const Usual usual_loss = usual_of(losses, kLeastLoss), usual_norm = usual_of(logs, kLeastNorm);
        scores = {.loss = usual_loss.score(loss),
                  .norm = usual_norm.score(std::log(norm)),
                  .usual_loss = usual_loss.median,
                  .usual_norm = std::exp(usual_norm.median)};
    }
    observed_.push_back({.step = step, .loss = loss, .norm = norm});
    if (observed_.size() > kWindow + 1) observed_.pop_front();
    return scores;
}

nlohmann::json SpikeWatch::state() const {
    std::string steps, loss, norm;
    for (const Observed& entry : observed_) {
        append(steps, entry.step);
        append(loss, entry.loss);
        append(norm, entry.norm);
    }
    return {{"steps", steps}, {"loss", loss}, {"grad_norm", norm}};
}

void SpikeWatch::restore(const nlohmann::json& state) {
    observed_.clear();
    if (state.is_null()) return;
    const auto steps = numbers_of<std::int64_t>(state, "steps");
    const auto loss = numbers_of<double>(state, "loss"), norm = numbers_of<double>(state, "grad_norm");
    require(steps.size() == loss.size() && steps.size() == norm.size() && steps.size() <= kWindow + 1,
            "the checkpoint's spike_watch has ", steps.size(), " steps, ", loss.size(), " losses and ", norm.size(),
            " gradient norms; it keeps as many of each, up to ", kWindow + 1);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        require(i == 0 || steps[i - 1] < steps[i], "the checkpoint's spike_watch.steps: ", steps[i], " is not after ",
                i == 0 ? 0 : steps[i - 1]);
        require(std::isfinite(loss[i]) && std::isfinite(norm[i]) && norm[i] > 0, "the checkpoint's spike_watch: loss ",
                loss[i], " and gradient norm ", norm[i], " of step ", steps[i], " are not the results of a step");
        observed_.push_back({.step = steps[i], .loss = loss[i], .norm = norm[i]});
    }
}

std::string spike_line(std::int64_t step, double loss, double norm, const SpikeScores& scores, bool dropped) {
    return text("spike at step ", step, ": gradient norm ", short_number(norm), ", z ", short_number(scores.norm),
                ", median ", short_number(scores.usual_norm), "; loss ", short_number(loss), ", z ",
                short_number(scores.loss), ", median ", short_number(scores.usual_loss),
                dropped ? "; the update was dropped" : "");
}

}  // namespace coda
