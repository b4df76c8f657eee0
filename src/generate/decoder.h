// Generation: a model that makes a token per sequence and step, or more where guesses come true, with a cache of keys
// and values.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/math/sampling.h"

namespace coda {

/// How one sequence is to continue.
struct SequenceStart {
    std::vector<std::int32_t> prompt;      // at least one token, each in [0, vocab_size)
    ChoiceOptions choice;                  // how its tokens are chosen
    std::int64_t max_tokens = 0;           // at most this many are made, at least 1
    std::vector<std::int32_t> end_tokens;  // any of these ends the sequence
};

/// What one call made of one sequence.
struct SequenceAdvance {
    enum class State : std::uint8_t {
        idle,     // the row has no sequence
        running,  // it continues with the next call
        ended,    // by an end token, which is the last of `tokens`
        length    // by max_tokens, or because the context is full
    };
    std::vector<std::int32_t> tokens;  // in order
    State state = State::idle;
    std::int64_t steps = 0;  // in which these tokens were made: fewer where guesses came true
};

/// Sequences side by side, each in a row of its own. A sequence has the same tokens by itself and with others, in any
/// row, for any number of steps per call, with guesses and without.
class Decoder {
  public:
    virtual ~Decoder() = default;

    virtual int batch() const = 0;             // 1 to 16
    virtual std::int64_t context() const = 0;  // positions per sequence: prompt and made tokens

    /// Steps that a call of advance() should ask for where nothing else decides: more than 1 where a call of 1 takes
    /// longer than its share of a longer one.
    virtual int steps_per_call() const { return 1; }

    /// Fills the row's cache with all but the last token of the prompt. That one is the first input of advance(). A
    /// sequence that the row had before is gone. The prefill is complete when start() returns, so that a caller can
    /// time it. Throws Error where the row, the prompt, its length or max_tokens do not fit.
    virtual void start(int row, const SequenceStart& sequence) = 0;

    /// Runs up to `steps` steps, each of which makes a token of every sequence that runs, and more where guesses come
    /// true; an entry per row. A row whose sequence has ended says so once and is idle afterwards. After an interrupt
    /// (src/core/interrupt.h) it runs fewer, at least 1. Throws NonFiniteError naming row and position where a logit is
    /// not finite; the tokens of that sequence before it have been returned. Throws Error where the device does not
    /// come to an end.
    virtual std::vector<SequenceAdvance> advance(int steps) = 0;

    /// Ends a sequence from outside: a stop text, an interrupt. The row is idle at once.
    virtual void stop(int row) = 0;

    /// Bytes of weights and cached keys and values that all steps so far had to read, each byte once per step, and what
    /// the device's memory gives per second at best; NaN without an agreed figure.
    virtual double bytes_read() const { return 0; }
    virtual double peak_bytes_per_s() const { return std::numeric_limits<double>::quiet_NaN(); }
};

}  // namespace coda
