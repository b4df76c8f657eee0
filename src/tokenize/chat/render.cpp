#include "src/tokenize/chat/render.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <string_view>
#include <utility>

#include "src/core/utf8.h"

namespace coda {
namespace {

/// What Python's str.strip() takes away, as Jinja's filter trim does.
bool is_stripped(char32_t c) { return is_space(c) || (c >= 0x1C && c <= 0x1F); }

std::string_view trimmed(std::string_view text) {
    std::size_t begin = text.size(), end = 0;
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint character = decode_utf8(text.substr(at));
        const std::size_t length = character.length == 0 ? 1 : character.length;
        if (!is_stripped(character.value) || character.length == 0) {
            begin = std::min(begin, at);
            end = at + length;
        }
        at += length;
    }
    return end == 0 ? std::string_view{} : text.substr(begin, end - begin);
}

class Pieces {
  public:
    void marker(const char* text) { pieces_.push_back({true, text}); }
    void plain(std::string_view text) {
        if (text.empty()) return;
        if (pieces_.empty() || pieces_.back().marker) pieces_.push_back({false, {}});
        pieces_.back().text += text;
    }
    std::vector<ChatPiece> take() { return std::move(pieces_); }

  private:
    std::vector<ChatPiece> pieces_;
};

void llama3_header(Pieces& pieces, std::string_view role) {
    pieces.marker("<|start_header_id|>");
    pieces.plain(role);
    pieces.marker("<|end_header_id|>");
    pieces.plain("\n\n");
}

std::vector<ChatPiece> render_llama3(const ChatTemplate& known, const std::vector<ChatMessage>& messages,
                                     const std::string& today) {
    Pieces pieces;
    if (known.bos) pieces.marker("<|begin_of_text|>");
    std::size_t first = 0;
    if (known.family == ChatFamily::llama3_date) {
        llama3_header(pieces, "system");
        pieces.plain("Cutting Knowledge Date: December 2023\nToday Date: ");
        pieces.plain(known.date.empty() ? today : known.date);
        pieces.plain("\n\n");
        if (!messages.empty() && messages[0].role == "system") pieces.plain(trimmed(messages[first++].content));
        pieces.marker("<|eot_id|>");
    }
    for (; first < messages.size(); ++first) {
        llama3_header(pieces, messages[first].role);
        pieces.plain(trimmed(messages[first].content));
        pieces.marker("<|eot_id|>");
    }
    llama3_header(pieces, "assistant");
    return pieces.take();
}

std::vector<ChatPiece> render_chatml(const ChatTemplate& known, const std::vector<ChatMessage>& messages) {
    Pieces pieces;
    const auto message = [&](std::string_view role, std::string_view content) {
        pieces.marker("<|im_start|>");
        pieces.plain(role);
        pieces.plain("\n");
        pieces.plain(content);
        pieces.marker("<|im_end|>");
        pieces.plain("\n");
    };
    const bool has_system = !messages.empty() && messages[0].role == "system";
    if (known.default_system && !has_system) message("system", *known.default_system);
    for (const ChatMessage& each : messages) message(each.role, each.content);
    pieces.marker("<|im_start|>");
    pieces.plain("assistant\n");
    return pieces.take();
}

}  // namespace

std::vector<ChatPiece> render_chat(const ChatTemplate& known, const std::vector<ChatMessage>& messages,
                                   const std::string& today) {
    return known.family == ChatFamily::chatml ? render_chatml(known, messages) : render_llama3(known, messages, today);
}

std::string chat_date() {
    constexpr std::array kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    const std::string day = std::to_string(local.tm_mday);
    return (day.size() < 2 ? "0" : "") + day + " " + kMonths[static_cast<std::size_t>(local.tm_mon)] + " " +
           std::to_string(local.tm_year + 1900);
}

}  // namespace coda
