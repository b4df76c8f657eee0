#include "src/tokenize/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "kernels/core/error.h"

namespace coda {
namespace {

constexpr std::size_t kJitStackBytes = std::size_t{32} << 20;  // reserved, not touched until it is needed

std::string message_of(int error) {
    std::array<PCRE2_UCHAR, 256> buffer{};
    pcre2_get_error_message(error, buffer.data(), buffer.size());
    return reinterpret_cast<const char*>(buffer.data());
}

template <auto Free>
struct Freed {
    template <class T>
    void operator()(T* handle) const {
        Free(handle);
    }
};

}  // namespace

struct Regex::Code {
    std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> compiled;
    bool jit = false;
};

struct RegexScanner::State {
    const pcre2_code* code = nullptr;
    bool jit = false;
    std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>> data;
    std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> context;
    std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>> stack;
};

Regex::Regex(const std::string& pattern, const std::string& where) : code_(std::make_unique<Code>()) {
    const std::string translated = to_pcre2(pattern, where);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                        PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    require(code_->compiled != nullptr, where, ": the regular expression ", pattern,
            " is not valid: ", message_of(error), " at byte ", offset, " of ", translated);
    std::uint32_t matches_empty = 0;
    pcre2_pattern_info(code_->compiled.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
    require(matches_empty == 0, where, ": the regular expression ", pattern,
            " can match the empty text, which splits nothing");
    code_->jit = pcre2_jit_compile(code_->compiled.get(), PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;

RegexScanner::RegexScanner(const Regex& regex) : state_(std::make_unique<State>()) {
    state_->code = regex.code_->compiled.get();
    state_->jit = regex.code_->jit;
    state_->data.reset(pcre2_match_data_create(1, nullptr));
    state_->context.reset(pcre2_match_context_create(nullptr));
    require(state_->data && state_->context, "out of memory for a regular expression's matches");
    pcre2_set_match_limit(state_->context.get(), UINT32_MAX);
    pcre2_set_depth_limit(state_->context.get(), UINT32_MAX);
    if (!state_->jit) return;
    state_->stack.reset(pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr));
    require(state_->stack != nullptr, "out of memory for a regular expression's stack");
    pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
}

RegexScanner::~RegexScanner() = default;

std::optional<Match> RegexScanner::find(std::string_view text, std::size_t from) {
    State& s = *state_;
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int found =
        s.jit ? pcre2_jit_match(s.code, subject, text.size(), from, 0, s.data.get(), s.context.get())
              : pcre2_match(s.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, s.data.get(), s.context.get());
    if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
    // A count of 0: there were more groups than the one whose place is kept.
    require(found >= 0, "the pre-tokenizer's regular expression gave up: ", message_of(found));
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(s.data.get());
    return Match{place[0], place[1]};
}

}  // namespace coda
