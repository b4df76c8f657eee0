#include "src/tokenize/chat/jinja_words.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "kernels/core/error.h"

namespace coda {
namespace {

using Kind = JinjaWord::Kind;

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

class Reader {
  public:
    Reader(std::string_view jinja, const std::string& where) : rest_(jinja), where_(where) {
        if (rest_.ends_with('\n')) rest_.remove_suffix(1);  // Jinja does not keep it
    }

    std::vector<JinjaWord> read() {
        while (!rest_.empty()) {
            const std::size_t tag = find_tag();
            outside(rest_.substr(0, tag), rest_.substr(tag));
            rest_.remove_prefix(tag);
            if (rest_.empty()) break;
            const char kind = rest_[1];
            if (kind == '#') {
                comment();
            } else {
                words_.push_back({kind == '{' ? Kind::expression : Kind::statement});
                inside(kind == '{' ? "}}" : "%}");
                words_.push_back({Kind::close});
            }
            begins_line_ = kind != '{' && rest_.starts_with('\n');
            if (begins_line_) rest_.remove_prefix(1);  // trim_blocks
        }
        return std::move(words_);
    }

  private:
    std::size_t find_tag() const {
        for (std::size_t at = 0; (at = rest_.find('{', at)) != std::string_view::npos; ++at) {
            const std::string_view next = rest_.substr(at + 1, 1);
            if (next == "{" || next == "%" || next == "#") return at;
        }
        return rest_.size();
    }

    /// `text` before the tag that `tag` begins with.
    void outside(std::string_view text, std::string_view tag) {
        if (strip_) {
            while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
        }
        if (tag.size() > 2 && tag[2] == '-') {
            while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
        } else if (tag.size() > 2 && tag[1] != '{' && tag[2] != '+') {  // lstrip_blocks, at the beginning of a line
            const std::size_t last = text.find_last_not_of(" \t");
            const bool stripped = last == std::string_view::npos ? begins_line_ : text[last] == '\n';
            if (stripped) text = text.substr(0, last + 1);
        }
        if (!text.empty()) words_.push_back({Kind::outside, std::string(text)});
    }

    void comment() {
        const std::size_t at = rest_.find("#}", 2);
        require(at != std::string_view::npos, where_, ": a comment has no \"#}\"");
        strip_ = rest_[at - 1] == '-';
        rest_.remove_prefix(at + 2);
    }

    void inside(std::string_view end) {
        rest_.remove_prefix(2);
        if (rest_.starts_with('-') || rest_.starts_with('+')) rest_.remove_prefix(1);
        strip_ = false;
        while (!rest_.starts_with(end)) {
            require(!rest_.empty(), where_, ": a tag has no \"", end, "\"");
            const char c = rest_[0];
            if (c == '"' || c == '\'') {
                literal(c);
            } else if (begins_name(c)) {
                const auto stop = std::find_if_not(rest_.begin(), rest_.end(), in_name);
                words_.push_back({Kind::name, std::string(rest_.begin(), stop)});
                rest_.remove_prefix(static_cast<std::size_t>(stop - rest_.begin()));
            } else {
                strip_ = c == '-' && rest_.substr(1).starts_with(end);
                if (!strip_ && !is_blank(c) && !in_name(c)) words_.push_back({Kind::sign, std::string(1, c)});
                rest_.remove_prefix(1);
            }
        }
        rest_.remove_prefix(end.size());
    }

    void literal(char quote) {
        std::string value;
        std::size_t at = 1;
        for (; at < rest_.size() && rest_[at] != quote; ++at) {
            if (rest_[at] != '\\' || at + 1 == rest_.size()) {
                value += rest_[at];
                continue;
            }
            const char escaped = rest_[++at];
            const bool known = std::string_view("nrt\\\"'").find(escaped) != std::string_view::npos;
            if (!known) value += '\\';
            value += escaped == 'n' ? '\n' : escaped == 'r' ? '\r' : escaped == 't' ? '\t' : escaped;
        }
        require(at < rest_.size(), where_, ": a string has no end");
        rest_.remove_prefix(at + 1);
        words_.push_back({Kind::literal, value});
    }

    std::string_view rest_;
    const std::string& where_;
    bool strip_ = false;       // the last tag ends with '-'
    bool begins_line_ = true;  // what follows the last tag
    std::vector<JinjaWord> words_;
};

}  // namespace

std::vector<JinjaWord> jinja_words(std::string_view jinja, const std::string& where) {
    return Reader(jinja, where).read();
}

}  // namespace coda
