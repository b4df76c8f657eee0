// The lists of operations that a run executes, and which of them it needs.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace coda {

/// A step of the optimizer is `first`, then `further` for every other micro-batch, then `update`. `sample` is the
/// forward pass of the micro-batch's first sequence and the logits of its last row.
enum class Pass : std::uint8_t { first, further, update, evaluate, sample };
inline constexpr Pass kPasses[] = {Pass::first, Pass::further, Pass::update, Pass::evaluate, Pass::sample};
const char* name_of(Pass pass);

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

inline constexpr PassSet kAllPasses{Pass::first, Pass::further, Pass::update, Pass::evaluate, Pass::sample};

/// What the program was started for. Its plan holds the buffers of its passes and no others.
enum class Mode : std::uint8_t { train, evaluate, sample, export_ };

/// Training evaluates too. An export runs nothing: weights are written from where they are read.
constexpr PassSet passes_of(Mode mode) {
    switch (mode) {
        case Mode::train: return {Pass::first, Pass::further, Pass::update, Pass::evaluate};
        case Mode::evaluate: return {Pass::evaluate};
        case Mode::sample: return {Pass::sample};
        case Mode::export_: return {};
    }
    return {};
}

}  // namespace coda
