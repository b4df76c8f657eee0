#include "src/tokenize/tokenizer.h"

#include <algorithm>
#include <utility>

#include "kernels/core/error.h"

namespace coda {
namespace {

std::vector<std::unique_ptr<Regex>> compiled(const std::vector<PreTokenizerStep>& steps) {
    std::vector<std::unique_ptr<Regex>> regexes;
    for (const PreTokenizerStep& step : steps) {
        const bool splits = step.kind == PreTokenizerStep::Kind::split;
        regexes.push_back(splits ? std::make_unique<Regex>(step.regex, step.where) : nullptr);
    }
    return regexes;
}

/// The tokens that are looked for before the normalizer, or after it, their texts normalized too.
std::vector<AddedToken> added_tokens(const TokenizerSpec& spec, const Normalizer& normalizer, bool normalized) {
    std::vector<AddedToken> tokens;
    for (AddedToken token : spec.added) {
        if (token.normalized != normalized) continue;
        if (normalized) {
            std::string storage;
            token.content = std::string(normalizer.apply(token.content, true, storage));
            require(!token.content.empty(), spec.file, ": the normalizer leaves nothing of the added token with id ",
                    token.id);
        }
        tokens.push_back(std::move(token));
    }
    return tokens;
}

}  // namespace

Tokenizer::Tokenizer(TokenizerSpec spec)
    : spec_(std::move(spec)),
      normalizer_(spec_.normalizer),
      regexes_(compiled(spec_.pre_tokenizer)),
      model_(spec_),
      added_(added_tokens(spec_, normalizer_, false)),
      normalized_added_(added_tokens(spec_, normalizer_, true)),
      special_(spec_.bytes.size()) {
    for (const AddedToken& token : spec_.added) special_[token.id] = special_[token.id] || token.special;
}

std::optional<std::uint32_t> Tokenizer::id_of(const std::string& token) const {
    const auto added = std::find_if(spec_.added.begin(), spec_.added.end(),
                                    [&](const AddedToken& candidate) { return candidate.content == token; });
    if (added != spec_.added.end()) return added->id;
    const auto found = spec_.vocabulary.find(token);
    if (found != spec_.vocabulary.end()) return found->second;
    return std::nullopt;
}

bool Tokenizer::is_added(std::uint32_t id) const {
    return std::any_of(spec_.added.begin(), spec_.added.end(),
                       [id](const AddedToken& token) { return token.id == id; });
}

const std::string& Tokenizer::content_of_added(std::uint32_t id) const {
    const auto found =
        std::find_if(spec_.added.begin(), spec_.added.end(), [id](const AddedToken& token) { return token.id == id; });
    require(found != spec_.added.end(), spec_.file, ": no added token has id ", id);
    return found->content;
}

std::string_view Tokenizer::bytes_of(std::uint32_t id) const {
    require(has(id), spec_.file, ": no token has id ", id);
    return *spec_.bytes[id];
}

std::string TokenStream::add(std::uint32_t id) {
    const DecodedStart& start = tokenizer_.start();
    std::string_view bytes = tokenizer_.bytes_of(id);
    const auto other = std::exchange(begun_, true) ? start.first.end() : start.first.find(id);
    if (other != start.first.end()) bytes = other->second;
    while (strips_ > 0 && !bytes.empty()) {
        if (bytes.starts_with(start.strip)) {
            bytes.remove_prefix(start.strip.size());
            --strips_;
        } else {
            strips_ = 0;
        }
    }
    return std::string(bytes);
}

}  // namespace coda
