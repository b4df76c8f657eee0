#include "src/tokenize/chat/template.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/error.h"
#include "src/core/printable.h"
#include "src/tokenize/chat/jinja_words.h"
#include "src/tokenize/chat/shown_text.h"

namespace coda {
namespace {

using Kind = JinjaWord::Kind;
using Words = std::set<std::string, std::less<>>;

constexpr const char* kKnown = "the templates known here are Llama 3.0 to 3.3 and ChatML";

/// The words of conditions that are true only in conversations with tools.
const Words kToolWords{"tools",      "custom_tools", "builtin_tools", "tools_in_user_message",
                       "tool_calls", "tool_call",    "tool",          "ipython"};

const Words kNames{"for",
                   "in",
                   "endfor",
                   "if",
                   "elif",
                   "else",
                   "endif",
                   "set",
                   "not",
                   "and",
                   "or",
                   "is",
                   "defined",
                   "none",
                   "true",
                   "false",
                   "loop",
                   "first",
                   "last",
                   "index0",
                   "message",
                   "messages",
                   "loop_messages",
                   "role",
                   "content",
                   "trim",
                   "bos_token",
                   "add_generation_prompt",
                   "system_message",
                   "date_string",
                   "strftime_now"};

const Words kKeys{"role", "content", "system", "user", "assistant", ""};

const Words kLlama3{"<|begin_of_text|>",
                    "<|start_header_id|>",
                    "<|end_header_id|>\n\n",
                    "<|start_header_id|>system<|end_header_id|>\n\n",
                    "<|start_header_id|>user<|end_header_id|>\n\n",
                    "<|start_header_id|>assistant<|end_header_id|>\n\n",
                    "<|eot_id|>",
                    "\n\n"};

constexpr const char* kCuttingDate = "Cutting Knowledge Date: December 2023\n";
const Words kLlama3Date{kCuttingDate, "Today Date: ", "%d %b %Y"};

const Words kChatMl{"<|im_start|>",
                    "<|im_start|>system\n",
                    "<|im_start|>user\n",
                    "<|im_start|>assistant\n",
                    "<|im_end|>",
                    "<|im_end|>\n",
                    "\n"};

/// A text of another family, and that family's name.
constexpr const char* kOthers[][2] = {{"[INST]", "Mistral or Llama 2"},
                                      {"<start_of_turn>", "Gemma"},
                                      {"<|channel|>", "Harmony"},
                                      {"<\xEF\xBD\x9C", "DeepSeek"},
                                      {"<|START_OF_TURN_TOKEN|>", "Command R"},
                                      {"<|end|>", "Phi 3"},
                                      {"<|user|>", "Zephyr, TinyLlama or OLMo"},
                                      {"<think>", "a model that thinks, such as Qwen3"},
                                      {"### Instruction", "Alpaca"},
                                      {"USER: ", "Vicuna"}};

/// "26 Jul 2024".
bool is_date(const std::string& text) {
    if (text.size() < 10) return false;
    const auto digits = [&](std::size_t first, std::size_t count) {
        return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(first),
                           text.begin() + static_cast<std::ptrdiff_t>(first + count),
                           [](char c) { return c >= '0' && c <= '9'; });
    };
    return text.size() == 11 && digits(0, 2) && text[2] == ' ' && text[6] == ' ' && digits(7, 4);
}

class Recogniser {
  public:
    Recogniser(std::string_view jinja, const std::string& where) : where_(where), words_(jinja_words(jinja, where)) {}

    ChatTemplate recognise() {
        for (const JinjaWord& word : words_) {
            if (word.kind == Kind::name) names_.insert(word.text);
        }
        known_.family = family();
        known_.bos = names_.contains("bos_token") && known_.family != ChatFamily::chatml;
        check_words();
        if (known_.family == ChatFamily::chatml) {
            refuse_if(names_.contains("trim"), "it trims the messages, which ChatML does not");
        } else {
            refuse_if(!names_.contains("trim"), "it does not trim the messages, which Llama 3 does");
        }
        if (known_.family == ChatFamily::llama3_date) {
            refuse_if(!today_ || (dates_.size() != 1), "it shows no date, or several");
            if (!names_.contains("strftime_now")) known_.date = *dates_.begin();
        }
        refuse_if(!is_order_of(known_.family, shown_),
                  "it shows its parts in another order, or not with one line end after each message");
        return known_;
    }

  private:
    [[noreturn]] void refuse(const std::string& why) const {
        throw Error(text(where_, ": the chat template is not known: ", why, "; ", kKnown));
    }
    void refuse_if(bool condition, const char* why) const {
        if (condition) refuse(why);
    }

    bool has(std::string_view part) const {
        return std::any_of(words_.begin(), words_.end(), [&](const JinjaWord& word) {
            return (word.kind == Kind::literal || word.kind == Kind::outside) &&
                   word.text.find(part) != std::string::npos;
        });
    }

    ChatFamily family() const {
        for (const auto& [part, name] : kOthers) {
            if (has(part)) refuse(text("it has \"", part, "\", as in the template of ", name));
        }
        if (has("<|start_header_id|>") && has("<|eot_id|>")) {
            return has("Cutting Knowledge Date") ? ChatFamily::llama3_date : ChatFamily::llama3;
        }
        if (has("<|im_start|>") && has("<|im_end|>")) return ChatFamily::chatml;
        refuse("it has the markers of neither");
    }

    /// Goes through the template and checks what a conversation without tools reaches.
    void check_words() {
        for (std::size_t i = 0; i < words_.size(); ++i) {
            if (words_[i].kind == Kind::statement) {
                i = statement(i);
            } else {
                check(words_[i], i);
                show(i);
            }
        }
    }

    /// The statement that begins at word `begin`; the index of its end.
    std::size_t statement(std::size_t begin) {
        std::size_t end = begin;
        while (words_[end].kind != Kind::close) ++end;
        const std::span body(words_.data() + begin + 1, end - begin - 1);
        const std::string keyword = body.empty() ? "" : body.front().text;
        if (keyword == "endif" || keyword == "endfor" || keyword == "elif" || keyword == "else") {
            refuse_if(open_.empty(), "an \"endif\", \"endfor\" or \"else\" is left over");
            open_.pop_back();
        }
        const bool about_tools =
            std::any_of(body.begin(), body.end(), [](const JinjaWord& word) { return kToolWords.contains(word.text); });
        if (keyword == "if" || keyword == "elif" || keyword == "for" || keyword == "else") {
            // "not" a tool's message, or a user's too: one without tools comes here as well.
            const bool all = body.size() > 1 && body[1].text == "not";
            const bool users = std::any_of(body.begin(), body.end(), [](const JinjaWord& word) {
                return word.kind == Kind::literal && word.text == "user";
            });
            open_.push_back(about_tools && !all && !users);
        }
        for (std::size_t i = begin + 1; i < end && !about_tools; ++i) check(words_[i], i);
        // What a message is put together in is shown where it is made.
        const bool made = keyword == "set" && body.size() > 2 && body[1].text == "content" && body[2].text == "=";
        for (std::size_t i = begin + 4; i < end && made; ++i) show(i);
        return end;
    }

    /// Word `index` of an expression, to what is shown.
    void show(std::size_t index) {
        if (needs_tools()) return;
        const JinjaWord& word = words_[index];
        const bool key = index > 0 && words_[index - 1].kind == Kind::sign && words_[index - 1].text == "[";
        if (word.kind == Kind::literal && !key) shown_ += word.text;
        if (word.kind != Kind::name && !(word.kind == Kind::literal && key)) return;
        constexpr std::pair<std::string_view, char> kValues[] = {{"role", shown::kRole},
                                                                 {"content", shown::kContent},
                                                                 {"system_message", shown::kSystem},
                                                                 {"date_string", shown::kDate},
                                                                 {"bos_token", shown::kBos}};
        for (const auto& [name, sign] : kValues) {
            if (word.text == name) shown_ += sign;
        }
    }

    /// Whether only a conversation with tools comes here.
    bool needs_tools() const {
        return std::any_of(open_.begin(), open_.end(), [](bool tools) { return tools; });
    }

    void check(const JinjaWord& word, std::size_t index) {
        if (needs_tools()) return;
        if (word.kind == Kind::name && !kNames.contains(word.text)) refuse(text("the name ", word.text));
        if (word.kind == Kind::outside) refuse(text("the text \"", printable(word.text, ""), "\" outside of tags"));
        if (word.kind == Kind::literal) check_literal(word.text, index);
    }

    void check_literal(const std::string& value, std::size_t index) {
        const auto follows = [&](const char* name) {
            return index >= 2 && words_[index - 1].text == "=" && words_[index - 2].text == name;
        };
        refuse_if(follows("system_message") && !value.empty(), "a system message of its own");
        if (kKeys.contains(value)) return;
        if (known_.family == ChatFamily::chatml) {
            if (kChatMl.contains(value) || take_default_system(value)) return;
        } else {
            if (kLlama3.contains(value)) return;
            if (known_.family == ChatFamily::llama3_date && kLlama3Date.contains(value)) {
                today_ = today_ || value == "Today Date: ";
                return;
            }
            if (known_.family == ChatFamily::llama3_date && follows("date_string") && is_date(value)) {
                dates_.insert(value);
                return;
            }
        }
        refuse(text("the string \"", printable(value, ""), "\""));
    }

    /// "<|im_start|>system\nX<|im_end|>\n".
    bool take_default_system(const std::string& value) {
        constexpr std::string_view kBegin = "<|im_start|>system\n", kEnd = "<|im_end|>\n";
        if (!value.starts_with(kBegin) || !value.ends_with(kEnd) || value.size() < kBegin.size() + kEnd.size()) {
            return false;
        }
        const std::string system = value.substr(kBegin.size(), value.size() - kBegin.size() - kEnd.size());
        if (system.find("<|") != std::string::npos) return false;
        if (known_.default_system && *known_.default_system != system) refuse("two system messages of its own");
        known_.default_system = system;
        return true;
    }

    const std::string& where_;
    std::vector<JinjaWord> words_;
    Words names_{}, dates_{};
    std::string shown_{};  // is_order_of
    bool today_ = false;
    std::vector<bool> open_{};  // of the branches around: whether only a conversation with tools takes it
    ChatTemplate known_{};
};

}  // namespace

ChatTemplate recognise_chat_template(std::string_view jinja, const std::string& where) {
    return Recogniser(jinja, where).recognise();
}

std::string name_of(const ChatTemplate& known) {
    switch (known.family) {
        case ChatFamily::llama3: return "Llama 3.0";
        case ChatFamily::llama3_date:
            return known.date.empty() ? "Llama 3.2, dated today" : "Llama 3.1, dated " + known.date;
        case ChatFamily::chatml: break;
    }
    return "ChatML";
}

const char* end_of_message(const ChatTemplate& known) {
    return known.family == ChatFamily::chatml ? "<|im_end|>" : "<|eot_id|>";
}

}  // namespace coda
