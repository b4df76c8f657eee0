// The Decoder of a model on an executor: a batch, and the sequences in its memory. What runs the steps is given.
//
// Where the schedules have several rows for each sequence (GenerationShape::rows_each), a step takes the newest token
// and guesses of those that follow it (prompt_lookup.h). Each row's token is chosen as without guesses, since no row
// sees what follows it. A row counts as long as the guesses before it came true.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "src/engine/executor.h"
#include "src/generate/decoder.h"
#include "src/generate/step_bytes.h"

namespace coda {

class BatchDecoder : public Decoder {
  public:
    /// The schedules have Pass::decode and Pass::prefill, whose weights and RoPE table are there before the first
    /// start(). `run` executes a prefill, `launches` steps of Pass::decode. Executor and schedules must outlive the
    /// decoder.
    BatchDecoder(Executor& executor, const Schedules& schedules, std::function<void(Pass)> run,
                 std::unique_ptr<DecodeLaunches> launches);

    int batch() const override { return static_cast<int>(held_.size()); }
    std::int64_t context() const override { return schedules_.host.cache.context; }
    int steps_per_call() const override { return guesses() ? 1 : launches_->most_steps(); }
    void start(int row, const SequenceStart& sequence) override;
    std::vector<SequenceAdvance> advance(int steps) override;
    void stop(int row) override;
    double bytes_read() const override { return bytes_read_; }
    double peak_bytes_per_s() const override { return executor_.peaks().bytes_per_s; }

    std::int64_t vocab() const { return vocab_; }
    /// The logits that the newest token of the row was chosen from, (vocab), in the storage type's precision. Without
    /// guesses.
    std::vector<float> logits(int row);
    /// The sequence continues as if it had made this token in place of its newest one. A repetition penalty still
    /// counts the newest one. Without guesses.
    void replace_newest(int row, std::int32_t token);

  private:
    struct Held {
        bool running = false;
        bool guessable = false;              // a repetition penalty depends on the tokens before, which are not known
        std::int64_t limit = 0;              // of its tokens
        std::vector<std::int32_t> tokens{};  // so far
        std::vector<std::int32_t> guess{};   // of the next step
    };
    /// What a launch made of a sequence, and its state afterwards.
    struct Taken {
        std::vector<std::int32_t> tokens;
        RowState state = RowState::running;
        std::int64_t steps = 0;
    };

    /// Rows of the pass that a row of the decoder has.
    std::int64_t rows_each() const { return schedules_.host.cache.rows_each; }
    bool guesses() const { return rows_each() > 1; }
    /// The first of the pass' rows that belong to a row of the decoder.
    std::int64_t first_of(int row) const { return row * rows_each(); }
    void check(int row) const;
    void check(int row, const SequenceStart& sequence) const;
    void prefill(int row, std::span<const std::int32_t> tokens);
    void set(const View& per_row, int row, std::int32_t value);
    std::int32_t get(const View& per_row, int row);
    bool any_running() const;
    /// Lays the newest tokens and the guesses after them out for the next step.
    void place_guesses();
    void count_bytes(const DecodedSteps& made);
    Taken taken(int row, const DecodedSteps& made) const;
    /// Hands out what a launch made of a sequence. Returns whether the sequence continues.
    bool take(int row, const DecodedSteps& made, SequenceAdvance& advance);
    [[noreturn]] void fail(int row);

    Executor& executor_;
    const Schedules& schedules_;
    const SequenceRows& sequences_;
    std::int64_t vocab_;
    std::vector<std::int64_t> prefill_lengths_;
    std::function<void(Pass)> run_;
    std::unique_ptr<DecodeLaunches> launches_;
    StepBytes bytes_;
    std::vector<Held> held_;  // by row
    double bytes_read_ = 0;
};

}  // namespace coda
