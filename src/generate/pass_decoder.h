// A Decoder that runs the passes of generation, on any executor.
#pragma once

#include <functional>
#include <vector>

#include "src/generate/decoder.h"
#include "src/train/executor.h"

namespace coda {

class PassDecoder : public Decoder {
  public:
    /// The schedules have Pass::decode and Pass::prefill, whose weights and RoPE table are there before the first
    /// start(). `run` executes a pass. Executor and schedules must outlive the decoder.
    PassDecoder(Executor& executor, const Schedules& schedules, std::function<void(Pass)> run);

    int slots() const override { return static_cast<int>(sequences_.token.cols); }
    std::int64_t context() const override { return schedules_.host.cache.context; }
    void start(int slot, const SequenceStart& sequence) override;
    std::vector<SequenceAdvance> advance(int steps) override;
    void stop(int slot) override;

  private:
    void check(int slot) const;
    void check(int slot, const SequenceStart& sequence) const;
    void prefill(int slot, std::span<const std::int32_t> tokens);
    void set(const View& per_slot, int slot, std::int32_t value);
    std::vector<std::int32_t> read(const View& per_slot);
    bool any_running() const;

    /// One token of every running sequence.
    void step(std::vector<SequenceAdvance>& advances);

    Executor& executor_;
    const Schedules& schedules_;
    const SequenceRows& sequences_;
    std::int64_t vocab_;
    std::vector<std::int64_t> prefill_lengths_;
    std::function<void(Pass)> run_;
    std::vector<bool> running_;  // by slot
};

}  // namespace coda
