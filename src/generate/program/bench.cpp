#include "src/generate/program/bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <vector>

#include "kernels/core/error.h"
#include "src/core/interrupt.h"
#include "src/core/standard_streams.h"

namespace coda {
namespace {

constexpr int kSteps = 16, kUntimed = 2;
constexpr std::int64_t kShortest = 16;

double ms_of(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// Ids spread over the vocabulary: which ones does not matter to the time.
SequenceStart sequence_of(std::int64_t length, std::int64_t vocab) {
    SequenceStart sequence;
    sequence.max_tokens = kUntimed + kSteps;
    sequence.choice.temperature = 0;
    for (std::int64_t i = 0; i < length; ++i) sequence.prompt.push_back(static_cast<std::int32_t>(i * 7919 % vocab));
    return sequence;
}

void time_steps(Decoder& decoder, std::int64_t length, std::int64_t vocab) {
    const SequenceStart sequence = sequence_of(length, vocab);
    double prefill = 0;
    for (int slot = 0; slot < decoder.slots(); ++slot) {
        prefill = ms_of([&] { decoder.start(slot, sequence); });
    }
    std::vector<double> steps;
    for (int step = 0; step < kUntimed + kSteps && !interrupted(); ++step) {
        const double ms = ms_of([&] { decoder.advance(1); });
        if (step >= kUntimed) steps.push_back(ms);
    }
    for (int slot = 0; slot < decoder.slots(); ++slot) decoder.stop(slot);
    if (steps.empty()) return;
    std::sort(steps.begin(), steps.end());
    const double median = steps[steps.size() / 2];
    std::array<char, 160> line{};
    std::snprintf(line.data(), line.size(), "%5d %8lld %12.3f %12.3f %12.1f %12.1f\n", decoder.slots(),
                  static_cast<long long>(length), prefill, median, 1000 / median, 1000 * decoder.slots() / median);
    print(line.data());
}

}  // namespace

void bench(const MakeDecoder& make, int most_slots, std::int64_t context, std::int64_t vocab) {
    require(context >= kShortest + kUntimed + kSteps, "--bench: a context of ", context, " positions is too short; ",
            kShortest + kUntimed + kSteps, " are needed");
    print("batch  context   prefill ms      step ms      steps/s     tokens/s\n");
    for (int slots = 1; slots <= most_slots; slots *= 2) {
        const std::unique_ptr<Decoder> decoder = make(slots);
        for (std::int64_t length = kShortest; length + kUntimed + kSteps <= context; length *= 4) {
            if (interrupted()) return;
            time_steps(*decoder, length, vocab);
        }
    }
}

}  // namespace coda
