#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/error.h"
#include "src/core/utf8.h"
#include "src/tokenize/cuts.h"
#include "src/tokenize/encoder.h"
#include "src/tokenize/python_json.h"
#include "tests/fuzz/targets.h"

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

}  // namespace coda::fuzz
