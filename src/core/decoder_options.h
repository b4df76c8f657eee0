// How tokens are made where a model generates: by which of two ways, for how many sequences, and how long one of them
// waits.
#pragma once

#include <cstdint>
#include <string>

namespace coda {

enum class DecoderChoice : std::uint8_t {
    automatic,  // the fused kernel where device and model allow it, else passes
    fused,      // one launch of one kernel for many tokens
    passes      // the op list, operation by operation
};

/// The choice that "auto", "fused" or "passes" names. Throws UsageError naming --decoder.
DecoderChoice decoder_choice(const std::string& word);

/// Sequences that a decoder runs side by side at most, as many as the fused kernel takes.
inline constexpr int kMostSequences = 16;

/// Tokens that a step takes with guesses, of all sequences together. The fused kernel takes longer for more of them,
/// and with more sequences than kMostLookupSequences each would have too few.
inline constexpr int kLookupRows = 8, kMostLookupSequences = 2;

inline constexpr double kDefaultWatchdog = 2, kShortestWatchdog = 0.001, kLongestWatchdog = 3600;

struct DecoderOptions {
    DecoderChoice choice = DecoderChoice::automatic;
    bool lookup = false;                         // guesses the next tokens from those before
    double watchdog_seconds = kDefaultWatchdog;  // a wait within the fused kernel that lasts longer ends it
};

}  // namespace coda
