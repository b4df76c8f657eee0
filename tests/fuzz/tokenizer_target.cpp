#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/error.h"
#include "src/core/utf8.h"
#include "src/tokenize/conversation.h"
#include "src/tokenize/cuts.h"
#include "src/tokenize/encoder.h"
#include "src/tokenize/given_text.h"
#include "src/tokenize/masked_tokens.h"
#include "tests/fuzz/targets.h"
#include "tests/tokenize/small_tokenizer.h"

namespace coda::fuzz {

void tokenizer(std::span<const std::byte> input) {
    // Plain and combining letters, digits, white space and an added token, as the regular expressions tell them apart.
    constexpr std::string_view kText =
        "Some text's 1234 e\u0301\u00e9\n\n  <|end|>\t\u4e2d\u6587 again \u2581a 12.5 (x) \n";
    std::string content(reinterpret_cast<const char*>(input.data()), input.size());
    const std::size_t end = std::min(content.find('\x1e'), content.size());  // a tokenizer_config.json may follow
    const std::string config = content.substr(std::min(end + 1, content.size()));
    content.resize(end);
    const Tokenizer tokenizer(parse_tokenizer(content, "input", config));
    std::vector<std::uint32_t> ids;
    Encoder encoder(tokenizer);
    encoder.encode(kText, ids);
    const std::size_t first = ids.size();
    encoder.encode(kText, ids);
    promise(ids.size() == 2 * first, "the same text has other tokens the second time");
    TokenStream stream(tokenizer);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        promise(tokenizer.has(ids[i]), "an id without token was made");
        promise(ids[i] == ids[i % first], "the same text has other tokens the second time");
        stream.add(ids[i]);
    }
    std::string text;
    for (int i = 0; i < 8; ++i) text += kText;
    const Cut cut = TextCutter(tokenizer).find(text);
    if (cut.at == 0) return;
    std::vector<std::uint32_t> whole, parts;
    encoder.encode(text, whole);
    encoder.encode(std::string_view(text).substr(0, cut.at + cut.lookahead), {.lookahead = cut.lookahead}, parts);
    encoder.encode(std::string_view(text).substr(cut.at), {.begins = false}, parts);
    promise(whole == parts, "a cut changes tokens");
}

void json_line(std::span<const std::byte> input) {
    const std::string line(reinterpret_cast<const char*>(input.data()), input.size());
    require(valid_utf8(line) == line.size(), "invalid UTF-8");
    const nlohmann::json value = parse_python_json(line, "line", kReplacementEscape);
    const nlohmann::json mended = nlohmann::json::parse(strict_json(line, kReplacementEscape), nullptr, false);
    promise(!mended.is_discarded(), "an accepted line is not strict once mended");
    promise(!value.dump().empty(), "an accepted value cannot be written");
}

void conversation(std::span<const std::byte> input) {
    static const Tokenizer tokenizer(small_spec({"e n", "e r", "s e"}));
    static const ChatTemplate chat(
        "{% for m in messages %}<|end|>{{ m.role }}\n{{ m.content }}{% if m.role == 'user' %}<|endless|>{% endif %}"
        "{% endfor %}",
        "chat");
    static MaskedEncoder encoder(tokenizer);
    const std::string_view line(reinterpret_cast<const char*>(input.data()), input.size());
    std::int64_t replaced = 0;
    const Conversation read = from_json_line(line, "line", InvalidUtf8::replace, replaced,
                                             [](const nlohmann::json& json) { return conversation_of(json, "line"); });
    promise(read.prompt_messages <= read.messages.size(), "a prompt has more messages than the conversation");
    if (!read.is_chat()) return;
    std::size_t expected = read.messages.size(), special = 0;
    std::vector<bool> counts;
    for (const ChatMessage& message : read.messages) {
        counts.push_back(message.role == "assistant");
        expected += message.role == "user" ? 1 : 0;
    }
    const MaskedTokens tokens = encoder.encode(chat.render(read.messages, {}), counts, TrainOn::assistant);
    promise(tokens.tokens.size() == tokens.mask.size(), "a token has no mask");
    for (const std::uint32_t id : tokens.tokens) special += tokenizer.is_special(id) ? 1 : 0;
    promise(special == expected, "a message spells a special token");
}

}  // namespace coda::fuzz
