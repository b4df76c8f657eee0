// The tokens of a template, as a parser takes them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/error.h"
#include "src/core/printable.h"
#include "src/tokenize/chat/lexer.h"

namespace coda::jinja {

class TokenStream {
  public:
    TokenStream(std::vector<Token> tokens, int most_nesting) : tokens_(std::move(tokens)), most_(most_nesting) {}

    const Token& current(std::size_t ahead = 0) const {
        return tokens_[at_ + ahead < tokens_.size() ? at_ + ahead : tokens_.size() - 1];
    }
    int line() const { return current().line; }
    bool is(Token::Kind kind) const { return current().kind == kind; }
    bool is_sign(std::string_view sign, std::size_t ahead = 0) const { return is(Token::Kind::sign, sign, ahead); }
    bool is_name(std::string_view name, std::size_t ahead = 0) const { return is(Token::Kind::name, name, ahead); }

    Token next() {
        Token token = current();
        if (at_ + 1 < tokens_.size()) ++at_;
        return token;
    }
    bool take_sign(std::string_view sign) { return is_sign(sign) && (next(), true); }
    bool take_name(std::string_view name) { return is_name(name) && (next(), true); }
    void expect_sign(std::string_view sign) {
        if (!take_sign(sign)) fail(text("expected \"", sign, "\", found ", found()));
    }
    Token expect(Token::Kind kind, const char* what) {
        if (!is(kind)) fail(text("expected ", what, ", found ", found()));
        return next();
    }

    std::string found() const {
        switch (current().kind) {
            case Token::Kind::block_end:
            case Token::Kind::print_end: return "the end of the tag";
            case Token::Kind::end: return "the end of the template";
            case Token::Kind::data: return "text";
            default: return "\"" + printable(current().text, "") + "\"";
        }
    }
    [[noreturn]] void fail(const std::string& why) const { throw Error(text("line ", line(), ": ", why)); }

    /// Counts how deep blocks and parentheses are nested.
    class Nested {
      public:
        explicit Nested(TokenStream& stream) : stream_(stream) {
            if (++stream_.nesting_ > stream_.most_) {
                stream_.fail(text("the template is nested more than ", stream_.most_, " deep"));
            }
        }
        ~Nested() { --stream_.nesting_; }
        Nested(const Nested&) = delete;
        Nested& operator=(const Nested&) = delete;

      private:
        TokenStream& stream_;
    };

  private:
    bool is(Token::Kind kind, std::string_view value, std::size_t ahead) const {
        return current(ahead).kind == kind && current(ahead).text == value;
    }

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    int nesting_ = 0, most_;
};

}  // namespace coda::jinja
