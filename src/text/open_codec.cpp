#include "src/text/open_codec.h"

#include "src/core/errors.h"
#include "src/io/run_tokenizer.h"
#ifdef CODA_TOKENIZER
#include "src/tokenize/encoder.h"
#endif

namespace coda {

#ifdef CODA_TOKENIZER
namespace {

class TokenizerCodec : public TextCodec {
  public:
    TokenizerCodec(const std::string& file, std::int64_t vocab) : tokenizer_(read_tokenizer(file)) {
        for (std::int64_t id = tokenizer_.vocab_size() - 1; id >= vocab; --id) {
            const auto token = static_cast<std::uint32_t>(id);
            require(!tokenizer_.has(token) || tokenizer_.is_added(token), file, ": its ids reach to ", id,
                    ", but model.vocab_size is ", vocab, "; was the model trained with another tokenizer?");
        }
    }

    std::vector<std::int32_t> encode(const std::string& text) override { return encode_chat(text, {}); }
    std::vector<std::int32_t> encode_chat(const std::string& text, std::span<const TextRange> messages) override {
        std::vector<std::uint32_t> ids;
        Encoder(tokenizer_).encode(text, {.plain = {messages.begin(), messages.end()}}, ids);
        return {ids.begin(), ids.end()};
    }
    std::string decode(std::int32_t token) override {
        return std::string(tokenizer_.bytes_of(static_cast<std::uint32_t>(token)));
    }

    std::function<std::string(std::int32_t)> text_stream() override {
        return [stream = TokenStream(tokenizer_)](std::int32_t token) mutable {
            return stream.add(static_cast<std::uint32_t>(token));
        };
    }

    std::optional<std::int32_t> id_of(const std::string& token) const override {
        const std::optional<std::uint32_t> id = tokenizer_.id_of(token);
        return id ? std::optional(static_cast<std::int32_t>(*id)) : std::nullopt;
    }
    bool is_text(std::int32_t token) const override {
        const auto id = static_cast<std::uint32_t>(token);
        return tokenizer_.has(id) && !tokenizer_.is_special(id);
    }

  private:
    Tokenizer tokenizer_;
};

}  // namespace

std::unique_ptr<TextCodec> open_text_codec(const std::string& file, std::int64_t vocab) {
    return std::make_unique<TokenizerCodec>(file, vocab);
}
#else
std::unique_ptr<TextCodec> open_text_codec(const std::string&, std::int64_t) {
    throw UsageError(
        "samples: this build has no tokenizers, whose libraries (PCRE2, zlib, zstd, utf8proc) were not found when it "
        "was configured; give --data.tokenizer null");
}
#endif

std::unique_ptr<TextCodec> text_codec(const Config& config, bool resume) {
    const std::int64_t vocab = config.model.vocab_size;
    if (const auto file = tokenizer_file(config, resume)) return open_text_codec(file->string(), vocab);
    return vocab == 256 ? make_byte_codec() : nullptr;
}

}  // namespace coda
