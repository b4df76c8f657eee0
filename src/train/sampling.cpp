#include "src/train/sampling.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops/choose_token/choose.h"
#include "src/core/errors.h"
#include "src/train/feed.h"

namespace coda {

namespace {

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

std::int32_t separator_of(const Config& config) {
    return static_cast<std::int32_t>(config.data.document_mask ? config.model.bos_token_id.value_or(-1) : -1);
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
    const sampling::Rules rules = sampling::rules_of(options.choice);
    std::vector<bool> seen(static_cast<std::size_t>(logits_.cols), false);
    for (const std::int32_t id : prompt) seen[static_cast<std::size_t>(id)] = true;
    std::vector<float> row(seen.size());
    for (std::int64_t index = 0; index < options.tokens; ++index) {
        const std::vector<double> found = logits(prompt);
        for (std::size_t id = 0; id < row.size(); ++id) {
            const auto logit = static_cast<float>(found[id]);
            if (!std::isfinite(logit))
                throw NonFiniteError(text("the logits of token ", index + 1, " of the sample are not finite"));
            row[id] = sampling::penalised(logit, seen[id], rules);
        }
        const auto position = static_cast<std::int64_t>(prompt.size());
        prompt.push_back(sampling::choose(row, rules, sampling::draw_of(options.choice.seed, position)));
        seen[static_cast<std::size_t>(prompt.back())] = true;
        token(prompt.back());
        if (std::count(options.end_tokens.begin(), options.end_tokens.end(), prompt.back()) > 0) return;
    }
}

std::optional<std::int32_t> TextCodec::id_of(const std::string&) const { return std::nullopt; }

bool TextCodec::is_text(std::int32_t) const { return true; }

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
