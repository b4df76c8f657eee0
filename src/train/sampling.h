// Sampling: text from a model, one token at a time.
//
// Every token runs the sample pass over the last seq_len tokens; nothing is kept from one token to the next. The window
// ends at the last row of the sequence, so that the row whose logits count is always the same and one schedule serves
// every length: a shorter text leaves padding before it, which doc_start keeps attention from seeing and which takes no
// part in the positions. Under document_mask the text is cut into documents as in training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/math/sampling.h"
#include "src/config/config.h"
#include "src/train/executor.h"
#include "src/train/token_input.h"

namespace coda {

struct SamplingOptions {
    std::int64_t tokens = 0;                 // how many
    ChoiceOptions choice{};                  // how each is chosen; valid
    std::vector<std::int32_t> end_tokens{};  // any of these is the last one
};

/// What a sample follows: text, or tokens as they are, or neither.
struct Prompt {
    std::optional<std::string> text;
    std::vector<std::int32_t> tokens;
};

/// The token that begins a document where data.document_mask keeps them apart, else -1.
std::int32_t separator_of(const Config& config);

class Sampler {
  public:
    /// `separator`: the token that begins a document, or -1 where documents are not kept apart. `run` executes
    /// Pass::sample.
    Sampler(Executor& executor, const HostViews& host, TokenInput& tokens, std::int64_t vocab, std::int32_t separator,
            std::function<void()> run);

    /// Logits (vocab) of the token that follows `tokens`, at least one; the last seq_len of them are seen. They have
    /// the storage type's precision.
    std::vector<double> logits(std::span<const std::int32_t> tokens);

    /// Chooses up to options.tokens tokens that follow `prompt`, by the definition in kernels/math/sampling.h, and
    /// hands each to `token` at once. A token's number among the draws is its position in the text, prompt included.
    /// All of the text, not the last seq_len tokens alone, is what the repetition penalty has seen. Throws
    /// NonFiniteError when a logit is not finite.
    void sample(std::vector<std::int32_t> prompt, const SamplingOptions& options,
                const std::function<void(std::int32_t)>& token);

  private:
    Executor& executor_;
    TokenInput& tokens_;
    View positions_, start_, logits_;  // of the first sequence
    std::int32_t separator_;
    std::function<void()> run_;
};

/// What tokens mean as text.
class TextCodec {
  public:
    virtual ~TextCodec() = default;
    virtual std::vector<std::int32_t> encode(const std::string& text) = 0;
    /// As encode(), but a special token that is spelled out in the text stays text.
    virtual std::vector<std::int32_t> encode_plain(const std::string& text) { return encode(text); }
    /// The bytes of one token; a character may need several tokens.
    virtual std::string decode(std::int32_t token) = 0;
    /// The token of this text; none where there is no such token.
    virtual std::optional<std::int32_t> id_of(const std::string& token) const;
    /// Whether a token is part of the text: not where it is a mark, such as an end of text, or where the vocabulary of
    /// the model is larger than the tokenizer's.
    virtual bool is_text(std::int32_t token) const;
};

/// Tokens that are bytes, as of a .txt file.
std::unique_ptr<TextCodec> make_byte_codec();

/// The tokens that a sample follows: model.bos_token_id, where the model has one, and --prompt, or --prompt-tokens as
/// they are; without either model.bos_token_id or a newline. `codec` may be null: then text has no tokens. Throws
/// UsageError when there is nothing to begin with, or a token is outside the vocabulary.
std::vector<std::int32_t> prompt_tokens(const Prompt& prompt, const ModelConfig& model, TextCodec* codec);

}  // namespace coda
