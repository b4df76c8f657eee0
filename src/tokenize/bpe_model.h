// The BPE model of a tokenizer: pieces of text to the tokens that merging begins with.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/core/text_range.h"
#include "src/tokenize/bpe.h"
#include "src/tokenize/tokenizer_spec.h"

namespace coda {

/// Immutable; threads share one. A unit is a byte of a byte-level vocabulary, else a character.
class BpeModel {
  public:
    explicit BpeModel(const TokenizerSpec& spec);

    const MergeTable& merges() const { return merges_; }

    /// The token that a whole piece is without merging: with ignore_merges, one that the vocabulary has.
    std::optional<std::uint32_t> whole(std::string_view piece) const;

    /// Replaces `out` by the tokens of the units of `piece`, valid UTF-8. A unit without token is dropped, or stands as
    /// its bytes' tokens or as the unknown token. Throws Error where an unknown token is needed that the vocabulary
    /// lacks. `places` is replaced by the bytes of the piece that each of them stands for.
    void symbols(std::string_view piece, std::vector<std::uint32_t>& out,
                 std::vector<TextRange>* places = nullptr) const;

    /// Whether a token stands for units without one.
    bool is_unknown(std::uint32_t id) const { return has_unk_ && id == unk_id_; }

    /// The unit before which pieces may be divided, as no token reaches across; empty if there is none. It is the one
    /// that most tokens begin with: of words, the space before them.
    const std::string& word_start() const { return word_start_; }

    /// Whether pieces may be divided before word_start() after this text, which is not empty.
    bool divides_after(std::string_view text) const;

  private:
    static constexpr std::uint32_t kNoToken = ~std::uint32_t{0};

    void find_word_start(const TokenizerSpec& spec);
    bool add_fallback(std::string_view character, std::vector<std::uint32_t>& out) const;
    std::uint32_t token_of(char32_t unit) const { return unit < unit_ids_.size() ? unit_ids_[unit] : kNoToken; }

    std::string file_;
    MergeTable merges_;
    bool byte_level_ = false;
    std::vector<std::uint32_t> unit_ids_;            // by byte or code point
    std::array<std::uint32_t, 256> fallback_ids_{};  // of <0xHH>
    bool byte_fallback_ = false, has_unk_ = false, fuse_unk_ = false;
    std::uint32_t unk_id_ = kNoToken;
    std::unordered_map<std::string, std::uint32_t> pieces_;  // with ignore_merges
    std::string word_start_;
    std::vector<bool> joined_;  // by unit: a token has it before word_start_, or it has no token
};

}  // namespace coda
