#include "src/text/codec.h"

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

std::vector<std::int32_t> TextCodec::encode_chat(const std::string& text, std::span<const TextRange>) {
    return encode(text);
}

std::optional<std::int32_t> TextCodec::id_of(const std::string&) const { return std::nullopt; }

std::function<std::string(std::int32_t)> TextCodec::text_stream() {
    return [this](std::int32_t token) { return decode(token); };
}

bool TextCodec::is_text(std::int32_t) const { return true; }

std::unique_ptr<TextCodec> make_byte_codec() { return std::make_unique<ByteCodec>(); }

}  // namespace coda
