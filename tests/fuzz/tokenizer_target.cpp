#include <string>
#include <string_view>
#include <vector>

#include "src/tokenize/tokenizer.h"
#include "tests/fuzz/targets.h"

namespace coda::fuzz {

void tokenizer(std::span<const std::byte> input) {
    // Plain and combining letters, digits, white space and an added token, as the regular expressions tell them apart.
    constexpr std::string_view kText = "Some text's 1234 e\u0301\u00e9\n\n  <|end|>\t\u4e2d\u6587 again ";
    const std::string content(reinterpret_cast<const char*>(input.data()), input.size());
    const Tokenizer tokenizer(parse_tokenizer(content, "input"));
    std::vector<std::uint32_t> ids;
    Encoder encoder(tokenizer);
    encoder.encode(kText, ids);
    const std::size_t first = ids.size();
    encoder.encode(kText, ids);
    promise(ids.size() == 2 * first, "the same text has other tokens the second time");
    for (std::size_t i = 0; i < ids.size(); ++i) {
        promise(!tokenizer.bytes_of(ids[i]).empty(), "an id without bytes was made");
        promise(ids[i] == ids[i % first], "the same text has other tokens the second time");
        promise(ids[i] < tokenizer.vocab_size(), "an id beyond the vocabulary was made");
    }
}

}  // namespace coda::fuzz
