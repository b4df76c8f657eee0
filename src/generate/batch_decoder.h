// The Decoder of a model on an executor: a batch, and the sequences in its memory. What runs the steps is given.
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

    int batch() const override { return static_cast<int>(running_.size()); }
    std::int64_t context() const override { return schedules_.host.cache.context; }
    int steps_per_call() const override { return launches_->most_steps(); }
    void start(int row, const SequenceStart& sequence) override;
    std::vector<SequenceAdvance> advance(int steps) override;
    void stop(int row) override;
    double bytes_read() const override { return bytes_read_; }
    double peak_bytes_per_s() const override { return executor_.peaks().bytes_per_s; }

    std::int64_t vocab() const { return vocab_; }
    /// The logits that the newest token of the row was chosen from, (vocab), in the storage type's precision.
    std::vector<float> logits(int row);
    /// The sequence continues as if it had made this token in place of its newest one. A repetition penalty still
    /// counts the newest one.
    void replace_newest(int row, std::int32_t token);

  private:
    void check(int row) const;
    void check(int row, const SequenceStart& sequence) const;
    void prefill(int row, std::span<const std::int32_t> tokens);
    void set(const View& per_row, int row, std::int32_t value);
    std::int32_t get(const View& per_row, int row);
    bool any_running() const;
    void count_bytes(const DecodedSteps& made);
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
    std::vector<bool> running_;          // by row
    std::vector<std::int64_t> lengths_;  // tokens of a running row's sequence
    double bytes_read_ = 0;
};

}  // namespace coda
