#include "src/generate/program/bench.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "kernels/core/error.h"
#include "src/core/interrupt.h"
#include "src/core/median.h"
#include "src/core/standard_streams.h"

namespace coda {
namespace {

constexpr std::int64_t kShortest = 16;

/// Calls of advance(): more of single steps, whose times vary more.
struct Calls {
    int steps, untimed, timed;

    explicit Calls(const Decoder& decoder)
        : steps(decoder.steps_per_call()), untimed(steps == 1 ? 2 : 1), timed(steps == 1 ? 16 : 5) {}
    std::int64_t tokens() const { return std::int64_t{steps} * (untimed + timed); }
};

struct Measured {
    double prefill_ms = 0, first_token_ms = 0;
    double ms = 0;     // of a step
    double bytes = 0;  // that a step must read

    /// NaN where the device has no agreed peak.
    double share_of_bandwidth(const Decoder& decoder) const { return bytes / (ms / 1000) / decoder.peak_bytes_per_s(); }
};

double ms_of(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// Ids spread over the vocabulary: which ones does not matter to the time.
SequenceStart sequence_of(std::int64_t length, std::int64_t tokens, std::int64_t vocab) {
    SequenceStart sequence;
    sequence.max_tokens = tokens;
    sequence.choice.temperature = 0;
    for (std::int64_t i = 0; i < length; ++i) sequence.prompt.push_back(static_cast<std::int32_t>(i * 7919 % vocab));
    return sequence;
}

/// Nothing where an interrupt came first.
std::optional<Measured> measure(Decoder& decoder, std::int64_t length, std::int64_t vocab) {
    const Calls calls(decoder);
    const SequenceStart sequence = sequence_of(length, calls.tokens(), vocab);
    Measured measured;
    measured.prefill_ms = ms_of([&] { decoder.start(0, sequence); });  // the first time of a length is not timed
    measured.prefill_ms = ms_of([&] { decoder.start(0, sequence); });
    measured.first_token_ms = measured.prefill_ms + ms_of([&] { decoder.advance(1); });
    for (int row = 0; row < decoder.batch(); ++row) decoder.start(row, sequence);
    std::vector<double> times;
    double before = 0;
    for (int call = 0; call < calls.untimed + calls.timed && !interrupted(); ++call) {
        if (call == calls.untimed) before = decoder.bytes_read();
        const double ms = ms_of([&] { decoder.advance(calls.steps); });
        if (call >= calls.untimed) times.push_back(ms / calls.steps);
    }
    for (int row = 0; row < decoder.batch(); ++row) decoder.stop(row);
    if (interrupted()) return std::nullopt;
    measured.ms = median_of(times);
    measured.bytes = (decoder.bytes_read() - before) / (calls.timed * calls.steps);
    return measured;
}

void print_line(const Decoder& decoder, std::int64_t length, const Measured& measured) {
    const double share = measured.share_of_bandwidth(decoder);
    std::array<char, 32> share_text{};
    if (std::isfinite(share)) std::snprintf(share_text.data(), share_text.size(), " %8.0f%%", 100 * share);
    std::array<char, 200> line{};
    std::snprintf(line.data(), line.size(), "%5d %8lld %12.3f %14.3f %12.3f %12.1f %12.1f%s\n", decoder.batch(),
                  static_cast<long long>(length), measured.prefill_ms, measured.first_token_ms, measured.ms,
                  1000 / measured.ms, 1000 * decoder.batch() / measured.ms, share_text.data());
    print(line.data());
}

void print_json(const Decoder& decoder, std::int64_t length, const Measured& measured) {
    nlohmann::ordered_json record{{"batch", decoder.batch()},
                                  {"context", length},
                                  {"steps_per_launch", decoder.steps_per_call()},
                                  {"prefill_ms", measured.prefill_ms},
                                  {"first_token_ms", measured.first_token_ms},
                                  {"ms", measured.ms},
                                  {"steps_per_s", 1000 / measured.ms},
                                  {"tokens_per_s", 1000 * decoder.batch() / measured.ms},
                                  {"bytes", measured.bytes}};
    if (const double peak = decoder.peak_bytes_per_s(); std::isfinite(peak)) {
        record["peak_tb_s"] = peak / 1e12;
        record["share_of_bandwidth"] = measured.share_of_bandwidth(decoder);
    }
    print(record.dump() + "\n");
}

}  // namespace

void bench(const MakeDecoder& make, const BenchShape& shape) {
    bool first = true;
    for (int batch = 1; batch <= shape.most_slots; batch *= 2) {
        const std::unique_ptr<Decoder> decoder = make(batch);
        const std::int64_t room = shape.context - Calls(*decoder).tokens();
        require(room >= kShortest, "--bench: a context of ", shape.context, " positions is too short; ",
                shape.context - room + kShortest, " are needed");
        if (first && !shape.json) {
            print("batch  context   prefill ms first token ms      step ms      steps/s     tokens/s");
            print(std::isfinite(decoder->peak_bytes_per_s()) ? " bandwidth\n" : "\n");
        }
        first = false;
        for (std::int64_t length = kShortest; length <= room; length *= 4) {
            if (interrupted()) return;
            const std::optional<Measured> measured = measure(*decoder, length, shape.vocab);
            if (measured) (shape.json ? print_json : print_line)(*decoder, length, *measured);
        }
    }
}

}  // namespace coda
