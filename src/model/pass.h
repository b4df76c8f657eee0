// The lists of operations that a run executes, and which of them it needs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace coda {

/// A step of the optimizer is `first`, then `further` for every other micro-batch, then `update`. `last` takes the
/// place of a rank's last micro-batch where there are several ranks: it exchanges the gradients. `scales`, of FP8
/// training only, makes scales and the weights' FP8 copies without an update: when a run begins and when it continues.
/// `derive`, of a model with LayerNorm, makes what ops read that follows from the weights only, when weights are
/// loaded; `update` ends with the same steps.
///
/// Generation with a cache: a `prefill` takes all tokens of a prompt but the last into the cache of one sequence;
/// `decode` takes one token of each sequence, the newest, and chooses the next one. Pass::prefill is the first of
/// kPrefillPasses, which differ in their number of rows (prefill_lengths).
enum class Pass : std::uint8_t { first, further, last, update, scales, derive, evaluate, decode, prefill };
inline constexpr int kPrefillPasses = 16;
constexpr Pass prefill_pass(std::size_t index) {
    return static_cast<Pass>(static_cast<std::size_t>(Pass::prefill) + index);
}
constexpr bool is_prefill(Pass pass) { return pass >= Pass::prefill; }
/// Which of the prefill passes it is.
constexpr std::size_t prefill_index(Pass pass) {
    return static_cast<std::size_t>(pass) - static_cast<std::size_t>(Pass::prefill);
}

inline constexpr auto kPasses = [] {
    std::array<Pass, static_cast<std::size_t>(Pass::prefill) + kPrefillPasses> passes{};
    for (std::size_t i = 0; i < passes.size(); ++i) passes[i] = static_cast<Pass>(i);
    return passes;
}();

/// Pass::prefill stands for all of its lengths.
class PassSet {
  public:
    constexpr PassSet(std::initializer_list<Pass> passes) {
        for (const Pass pass : passes) bits_ |= bit(pass);
    }
    constexpr bool has(Pass pass) const { return (bits_ & bit(pass)) != 0; }
    constexpr bool empty() const { return bits_ == 0; }
    constexpr PassSet operator|(PassSet other) const {
        other.bits_ |= bits_;
        return other;
    }

  private:
    static constexpr std::uint32_t bit(Pass pass) { return 1u << static_cast<unsigned>(pass); }
    std::uint32_t bits_ = 0;
};

/// What the program was started for. Its plan holds the buffers of its passes and no others.
enum class Mode : std::uint8_t { train, evaluate, generate, export_ };

/// Training evaluates too. An export runs nothing: weights are written from where they are read.
constexpr PassSet passes_of(Mode mode) {
    switch (mode) {
        case Mode::train: return {Pass::first, Pass::further, Pass::last, Pass::update, Pass::scales, Pass::evaluate};
        case Mode::evaluate: return {Pass::evaluate};
        case Mode::generate: return {Pass::decode, Pass::prefill};
        case Mode::export_: return {};
    }
    return {};
}

/// The passes that follow from a configuration: generation also needs a number of sequences and a context
/// (GenerationShape).
inline constexpr PassSet kAllPasses = passes_of(Mode::train);

}  // namespace coda
