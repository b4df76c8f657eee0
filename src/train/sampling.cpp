#include "src/train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/math/random.h"
#include "src/core/errors.h"
#include "src/train/feed.h"

namespace coda {

namespace {

/// Ids of the top_k largest logits, ascending; all when top_k is 0.
std::vector<std::int32_t> candidates_of(std::span<const double> logits, std::int64_t top_k) {
    std::vector<std::int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    if (top_k <= 0 || top_k >= static_cast<std::int64_t>(ids.size())) return ids;
    const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
    const auto end = ids.begin() + top_k;
    std::nth_element(ids.begin(), end - 1, ids.end(), [&](std::int32_t a, std::int32_t b) {
        return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
    });
    ids.erase(end, ids.end());
    std::sort(ids.begin(), ids.end());
    return ids;
}

class ByteCodec : public TextCodec {
  public:
    std::vector<std::int32_t> encode(const std::string& text) override {
        std::vector<std::int32_t> tokens;
        for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
        return tokens;
    }
    std::string decode(std::int32_t token) override { return std::string(1, static_cast<char>(token)); }
};

}  // namespace

std::int32_t choose_token(std::span<const double> logits, double temperature, std::int64_t top_k, double uniform) {
    const auto largest = std::max_element(logits.begin(), logits.end());
    if (temperature == 0) return static_cast<std::int32_t>(largest - logits.begin());
    const std::vector<std::int32_t> ids = candidates_of(logits, top_k);
    std::vector<double> cumulated;
    double sum = 0;
    for (const std::int32_t id : ids) {
        sum += std::exp((logits[static_cast<std::size_t>(id)] - *largest) / temperature);
        cumulated.push_back(sum);
    }
    // The first token whose part of the sum reaches beyond the chosen point: never one of probability 0.
    const auto chosen = std::upper_bound(cumulated.begin(), cumulated.end(), uniform * sum);
    const auto last = std::lower_bound(cumulated.begin(), cumulated.end(), sum);  // where rounding makes the point sum
    return ids[static_cast<std::size_t>(std::min(chosen, last) - cumulated.begin())];
}

double sample_uniform(std::uint64_t seed, std::int64_t index) {
    constexpr std::uint64_t kStream = 0x73616d706c65;  // "sample"
    const Random4 random = philox(seed, kStream, static_cast<std::uint64_t>(index));
    const std::uint64_t bits = std::uint64_t{random.word[0]} << 21 ^ random.word[1] >> 11;
    return static_cast<double>(bits) * 0x1p-53;
}

Sampler::Sampler(Executor& executor, const HostViews& host, TokenInput& tokens, std::int64_t vocab,
                 std::int32_t separator, std::function<void()> run)
    : executor_(executor),
      tokens_(tokens),
      positions_(part_of(host.positions, 0, host.sample_start.cols)),
      start_(host.sample_start),
      logits_(part_of(host.logits, 0, vocab)),
      separator_(separator),
      run_(std::move(run)) {}

std::vector<double> Sampler::logits(std::span<const std::int32_t> tokens) {
    const auto seq_len = static_cast<std::size_t>(start_.cols);
    const std::span window = tokens.last(std::min(tokens.size(), seq_len));
    require(!window.empty(), "sampling needs at least one token to begin with");
    const std::size_t padding = seq_len - window.size();
    std::vector<std::int32_t> positions(seq_len, 0), start(seq_len, 0);
    std::size_t first = padding;
    for (std::size_t t = padding; t < seq_len; ++t) {
        if (separator_ >= 0 && window[t - padding] == separator_) first = t;
        start[t] = static_cast<std::int32_t>(first);
        positions[t] = static_cast<std::int32_t>(t - first);
    }
    // What stands in the padding is not seen.
    tokens_.upload(static_cast<std::int64_t>(padding), window);
    executor_.upload(positions_, positions.data());
    executor_.upload(start_, start.data());
    run_();
    return download_vector(executor_, logits_);
}

void Sampler::sample(std::vector<std::int32_t> prompt, const SamplingOptions& options,
                     const std::function<void(std::int32_t)>& token) {
    for (std::int64_t index = 0; index < options.tokens; ++index) {
        const std::vector<double> row = logits(prompt);
        const bool finite = std::all_of(row.begin(), row.end(), [](double value) { return std::isfinite(value); });
        if (!finite) throw NonFiniteError(text("the logits of token ", index + 1, " of the sample are not finite"));
        prompt.push_back(choose_token(row, options.temperature, options.top_k, sample_uniform(options.seed, index)));
        token(prompt.back());
    }
}

std::unique_ptr<TextCodec> make_byte_codec() { return std::make_unique<ByteCodec>(); }

std::vector<std::int32_t> prompt_tokens(const Prompt& prompt, const ModelConfig& model, TextCodec* codec) {
    std::vector<std::int32_t> tokens = prompt.tokens;
    if (tokens.empty() && model.bos_token_id) tokens.push_back(static_cast<std::int32_t>(*model.bos_token_id));
    if (prompt.text || (tokens.empty() && codec)) {
        if (!codec) {
            throw UsageError(text("--prompt: a model with a vocabulary of ", model.vocab_size,
                                  " needs its tokenizer for text, --tokenizer FILE; only one of 256 is that of bytes"));
        }
        const std::vector<std::int32_t> encoded = codec->encode(prompt.text.value_or("\n"));
        tokens.insert(tokens.end(), encoded.begin(), encoded.end());
    }
    if (tokens.empty()) {
        throw UsageError("--sample: nothing to begin with: the model has no bos_token_id; give --prompt-tokens 1,2,3");
    }
    for (const std::int32_t token : tokens) {
        if (token < model.vocab_size) continue;
        throw UsageError(
            text("--sample: the prompt's token ", token, " is outside of model.vocab_size ", model.vocab_size));
    }
    return tokens;
}

}  // namespace coda
