#include "src/tokenize/chat/shown_text.h"

#include <string>

namespace coda {
namespace {

using namespace shown;

class Reader {
  public:
    explicit Reader(std::string_view rest) : rest_(rest) {}

    bool at_end() const { return rest_.empty(); }
    bool take(std::string_view part) {
        if (!rest_.starts_with(part)) return false;
        rest_.remove_prefix(part.size());
        return true;
    }
    bool take(char sign) { return take(std::string_view(&sign, 1)); }
    /// A message's role, by name or, kRole, as a value; 0 without a role.
    char take_role() {
        if (take("assistant")) return 'a';
        if (take("system")) return 's';
        if (take("user")) return 'u';
        return take(kRole) ? kRole : '\0';
    }
    /// What comes before `end`, which is taken too; nothing without an end.
    std::string_view take_until(std::string_view end) {
        const std::size_t at = rest_.find(end);
        if (at == std::string_view::npos) return {};
        const std::string_view body = rest_.substr(0, at);
        rest_.remove_prefix(at + end.size());
        return body;
    }

  private:
    std::string_view rest_;
};

bool is_value(std::string_view body) {
    return body == std::string_view(&kContent, 1) || body == std::string_view(&kSystem, 1);
}

bool is_chatml(Reader shown) {
    bool content = false, any_role = false;
    while (true) {
        const char role = shown.take("<|im_start|>") ? shown.take_role() : '\0';
        if (role == '\0' || !shown.take("\n")) return false;
        if (shown.at_end()) return role == 'a' && content;
        const std::string_view body = shown.take_until("<|im_end|>\n");
        content = content || body == std::string_view(&kContent, 1);
        any_role = any_role || role == kRole;
        if (is_value(body)) continue;
        // A system message of its own, before the conversation's messages.
        constexpr std::string_view kSigns{"\x01\x02\x03\x04\x05"};
        const bool text = body.find("<|") == std::string_view::npos && body.find_first_of(kSigns) == std::string::npos;
        if (body.empty() || !text || role != 's' || any_role) return false;
    }
}

bool is_llama3(Reader shown) {
    const std::string dated = std::string("Cutting Knowledge Date: December 2023\nToday Date: ") + kDate + "\n\n";
    bool content = false;
    shown.take(kBos);
    while (true) {
        const char role = shown.take("<|start_header_id|>") ? shown.take_role() : '\0';
        if (role == '\0' || !shown.take("<|end_header_id|>\n\n")) return false;
        if (shown.at_end()) return role == 'a' && content;
        std::string_view body = shown.take_until("<|eot_id|>");
        content = content || body == std::string_view(&kContent, 1);
        if (body.starts_with(dated)) body.remove_prefix(dated.size());
        if (!is_value(body)) return false;
        // Llama 3.0 puts a message together, then its bos token before it, and then shows it.
        const bool bos = shown.take(kBos);
        if (bos && !shown.take(kContent)) return false;
        if (!shown.take(kContent) && bos) return false;
    }
}

}  // namespace

bool is_order_of(ChatFamily family, std::string_view shown) {
    return family == ChatFamily::chatml ? is_chatml(Reader(shown)) : is_llama3(Reader(shown));
}

}  // namespace coda
