#include "src/tokenize/chat/parse_expression.h"

#include <charconv>
#include <initializer_list>
#include <utility>

namespace coda::jinja {
namespace {

using Kind = Expression::Kind;
using Nested = TokenStream::Nested;

/// Members, calls, filters, tests and conditions in a row, each of which holds the one before.
class Links {
  public:
    explicit Links(const TokenStream& tokens) : tokens_(tokens) {}
    void add() {
        if (++count_ > kMost) tokens_.fail(text("an expression has more than ", kMost, " parts in a row"));
    }

  private:
    static constexpr int kMost = 100;
    const TokenStream& tokens_;
    int count_ = 0;
};

class Parser {
  public:
    explicit Parser(TokenStream& tokens) : tokens_(tokens) {}

    ExpressionPtr expression() {
        ExpressionPtr first = any();
        for (Links links(tokens_); tokens_.is_name("if"); links.add()) {
            ExpressionPtr result = make(Kind::conditional);
            tokens_.next();
            result->parts.push_back(std::move(first));
            result->parts.push_back(any());
            const Nested nested(tokens_);
            result->parts.push_back(tokens_.take_name("else") ? expression() : nullptr);
            first = std::move(result);
        }
        return first;
    }

    ExpressionPtr any() {
        return chain(Kind::any, &Parser::all, [&] { return tokens_.take_name("or"); });
    }

    ExpressionPtr filters(ExpressionPtr input) {
        for (Links links(tokens_); tokens_.take_sign("|"); links.add()) {
            const Token name = tokens_.expect(Token::Kind::name, "a filter's name");
            ExpressionPtr result = make(Kind::filter, name.line);
            result->text = name.text + dotted();
            result->parts.push_back(std::move(input));
            input = tokens_.is_sign("(") ? arguments(std::move(result)) : std::move(result);
        }
        return input;
    }

  private:
    ExpressionPtr make(Kind kind, int line) const {
        auto result = std::make_unique<Expression>();
        result->kind = kind;
        result->line = line;
        return result;
    }
    ExpressionPtr make(Kind kind) const { return make(kind, tokens_.line()); }

    template <class More>
    ExpressionPtr chain(Kind kind, ExpressionPtr (Parser::*part)(), More&& more) {
        ExpressionPtr first = (this->*part)();
        if (!more()) return first;
        ExpressionPtr result = make(kind, first->line);
        result->parts.push_back(std::move(first));
        do {
            result->parts.push_back((this->*part)());
        } while (more());
        return result;
    }

    /// A chain of operators of one rank, which are kept in `words`.
    ExpressionPtr operators(Kind kind, ExpressionPtr (Parser::*part)(), std::initializer_list<std::string_view> signs,
                            bool in = false) {
        std::vector<std::string> words;
        ExpressionPtr result = chain(kind, part, [&] {
            for (const std::string_view sign : signs) {
                if (tokens_.take_sign(sign)) return words.emplace_back(sign), true;
            }
            if (in && tokens_.take_name("in")) return words.emplace_back("in"), true;
            if (!in || !tokens_.is_name("not") || !tokens_.is_name("in", 1)) return false;
            tokens_.next();
            tokens_.next();
            words.emplace_back("not in");
            return true;
        });
        if (!words.empty()) result->words = std::move(words);
        return result;
    }

    ExpressionPtr all() {
        return chain(Kind::all, &Parser::negation, [&] { return tokens_.take_name("and"); });
    }
    ExpressionPtr negation() {
        if (!tokens_.is_name("not")) return compare();
        const Nested nested(tokens_);
        ExpressionPtr result = make(Kind::negation);
        tokens_.next();
        result->parts.push_back(negation());
        return result;
    }
    ExpressionPtr compare() { return operators(Kind::compare, &Parser::sum, {"==", "!=", "<=", ">=", "<", ">"}, true); }
    ExpressionPtr sum() { return operators(Kind::arithmetic, &Parser::concat, {"+", "-"}); }
    ExpressionPtr concat() {
        return chain(Kind::concat, &Parser::product, [&] { return tokens_.take_sign("~"); });
    }
    ExpressionPtr product() { return operators(Kind::arithmetic, &Parser::power, {"*", "//", "/", "%"}); }
    ExpressionPtr power() {
        ExpressionPtr first = unary(true);
        while (tokens_.take_sign("**")) {
            unary(true);
            first = unsupported("the operator **", first->line);
        }
        return first;
    }

    ExpressionPtr unary(bool with_filters) {
        const Nested nested(tokens_);
        ExpressionPtr result;
        if (tokens_.is_sign("-") || tokens_.is_sign("+")) {
            result = make(tokens_.is_sign("-") ? Kind::minus : Kind::plus);
            tokens_.next();
            result->parts.push_back(unary(false));
        } else {
            result = primary();
        }
        result = postfix(std::move(result));
        for (Links links(tokens_); with_filters; links.add()) {
            if (tokens_.is_sign("|")) {
                result = filters(std::move(result));
            } else if (tokens_.is_name("is")) {
                result = test(std::move(result));
            } else if (tokens_.is_sign("(")) {
                result = call(std::move(result));
            } else {
                break;
            }
        }
        return result;
    }

    ExpressionPtr unsupported(std::string what, int line) const {
        ExpressionPtr result = make(Kind::unsupported, line);
        result->text = std::move(what);
        return result;
    }

    ExpressionPtr constant(Value value) {
        ExpressionPtr result = make(Kind::constant);
        result->value = std::move(value);
        tokens_.next();
        return result;
    }

    ExpressionPtr primary() {
        const Token& token = tokens_.current();
        switch (token.kind) {
            case Token::Kind::name: return name();
            case Token::Kind::integer: {
                std::int64_t value = 0;
                const auto end = token.text.data() + token.text.size();
                if (std::from_chars(token.text.data(), end, value).ec != std::errc{}) {
                    tokens_.fail("an integer has more than 64 bits");
                }
                return constant(Value(value));
            }
            case Token::Kind::real: return constant(Value(std::strtod(token.text.c_str(), nullptr)));
            case Token::Kind::string: {
                std::string value = token.text;
                for (; tokens_.current(1).kind == Token::Kind::string; tokens_.next()) value += tokens_.current(1).text;
                return constant(Value::of(value));
            }
            default: break;
        }
        if (tokens_.take_sign("(")) {
            ExpressionPtr result = make(Kind::tuple);
            if (!tokens_.is_sign(")")) result = parse_tuple(tokens_);
            tokens_.expect_sign(")");
            return result;
        }
        if (tokens_.is_sign("[")) return list();
        if (tokens_.is_sign("{")) return dict();
        tokens_.fail("expected an expression, found " + tokens_.found());
    }

    ExpressionPtr name() {
        const std::string& text = tokens_.current().text;
        if (text == "true" || text == "True") return constant(Value(true));
        if (text == "false" || text == "False") return constant(Value(false));
        if (text == "none" || text == "None") return constant(Value());
        ExpressionPtr result = make(Kind::name);
        result->text = tokens_.next().text;
        return result;
    }

    ExpressionPtr list() {
        ExpressionPtr result = make(Kind::list);
        tokens_.next();
        while (!tokens_.is_sign("]")) {
            if (!result->parts.empty()) tokens_.expect_sign(",");
            if (tokens_.is_sign("]")) break;
            result->parts.push_back(expression());
        }
        tokens_.next();
        return result;
    }

    ExpressionPtr dict() {
        ExpressionPtr result = make(Kind::dict);
        tokens_.next();
        while (!tokens_.is_sign("}")) {
            if (!result->parts.empty()) tokens_.expect_sign(",");
            if (tokens_.is_sign("}")) break;
            result->parts.push_back(expression());
            tokens_.expect_sign(":");
            result->parts.push_back(expression());
        }
        tokens_.next();
        return result;
    }

    ExpressionPtr postfix(ExpressionPtr value) {
        for (Links links(tokens_);; links.add()) {
            if (tokens_.is_sign(".")) {
                tokens_.next();
                const bool index = tokens_.is(Token::Kind::integer);
                ExpressionPtr result = make(index ? Kind::item : Kind::attribute);
                result->parts.push_back(std::move(value));
                if (index) {
                    result->parts.push_back(primary());
                } else {
                    result->text = tokens_.expect(Token::Kind::name, "a name after \".\"").text;
                }
                value = std::move(result);
            } else if (tokens_.is_sign("[")) {
                value = subscript(std::move(value));
            } else if (tokens_.is_sign("(")) {
                value = call(std::move(value));
            } else {
                return value;
            }
        }
    }

    ExpressionPtr subscript(ExpressionPtr value) {
        ExpressionPtr result = make(Kind::item);
        tokens_.next();
        result->parts.push_back(std::move(value));
        ExpressionPtr start = tokens_.is_sign(":") ? nullptr : expression();
        if (tokens_.is_sign(":")) {
            ExpressionPtr slice = make(Kind::slice);
            slice->parts.push_back(std::move(start));
            for (int i = 0; i < 2; ++i) {
                const bool more = tokens_.take_sign(":");
                const bool given = more && !tokens_.is_sign(":") && !tokens_.is_sign("]");
                slice->parts.push_back(given ? expression() : nullptr);
            }
            start = std::move(slice);
        }
        if (tokens_.is_sign(",")) tokens_.fail("an index with several values is not supported");
        tokens_.expect_sign("]");
        result->parts.push_back(std::move(start));
        return result;
    }

    ExpressionPtr call(ExpressionPtr function) {
        ExpressionPtr result = make(Kind::call);
        result->parts.push_back(std::move(function));
        return arguments(std::move(result));
    }

    /// "(a, b, c=d)" as further parts; what has "*" or "**" is not supported.
    ExpressionPtr arguments(ExpressionPtr result) {
        tokens_.expect_sign("(");
        bool first = true, starred = false;
        while (!tokens_.is_sign(")")) {
            if (!first) tokens_.expect_sign(",");
            if (tokens_.is_sign(")")) break;
            first = false;
            if (tokens_.take_sign("*") || tokens_.take_sign("**")) {
                starred = true;
                expression();
                continue;
            }
            const bool named = tokens_.is(Token::Kind::name) && tokens_.is_sign("=", 1);
            if (named) {
                result->words.push_back(tokens_.next().text);
                tokens_.next();
            } else if (!result->words.empty() || starred) {
                tokens_.fail("an argument without a name follows one with a name");
            }
            result->parts.push_back(expression());
        }
        tokens_.next();
        return starred ? unsupported("an argument with \"*\"", result->line) : std::move(result);
    }

    std::string dotted() {
        std::string more;
        while (tokens_.take_sign(".")) more += "." + tokens_.expect(Token::Kind::name, "a name").text;
        return more;
    }

    ExpressionPtr test(ExpressionPtr value) {
        ExpressionPtr result = make(Kind::test);
        tokens_.next();
        const bool negated = tokens_.take_name("not");
        result->text = tokens_.expect(Token::Kind::name, "a test's name").text + dotted();
        result->parts.push_back(std::move(value));
        const Token& token = tokens_.current();
        const bool word =
            token.kind == Token::Kind::name && token.text != "else" && token.text != "or" && token.text != "and";
        const bool literal = token.kind == Token::Kind::string || token.kind == Token::Kind::integer ||
                             token.kind == Token::Kind::real || tokens_.is_sign("[") || tokens_.is_sign("{");
        if (tokens_.is_sign("(")) {
            result = arguments(std::move(result));
        } else if (word && token.text == "is") {
            tokens_.fail("two tests in a row");
        } else if (word || literal) {
            result->parts.push_back(postfix(primary()));
        }
        if (!negated) return result;
        ExpressionPtr outer = make(Kind::negation, result->line);
        outer->parts.push_back(std::move(result));
        return outer;
    }

    TokenStream& tokens_;
};

}  // namespace

ExpressionPtr parse_expression(TokenStream& tokens) { return Parser(tokens).expression(); }

ExpressionPtr parse_filters(TokenStream& tokens, ExpressionPtr input) {
    return Parser(tokens).filters(std::move(input));
}

ExpressionPtr parse_tuple(TokenStream& tokens, bool conditional, std::string_view end) {
    const auto one = [&] { return conditional ? Parser(tokens).expression() : Parser(tokens).any(); };
    ExpressionPtr first = one();
    if (!tokens.is_sign(",")) return first;
    auto result = std::make_unique<Expression>();
    result->kind = Kind::tuple;
    result->line = first->line;
    result->parts.push_back(std::move(first));
    while (tokens.take_sign(",")) {
        const bool ends = tokens.is(Token::Kind::block_end) || tokens.is(Token::Kind::print_end) ||
                          tokens.is_sign(")") || (!end.empty() && tokens.is_name(end));
        if (ends) break;
        result->parts.push_back(one());
    }
    return result;
}

Target parse_target(TokenStream& tokens, bool members) {
    const auto one = [&]() -> Target {
        if (tokens.take_sign("(")) {
            const Nested nested(tokens);
            Target inner = parse_target(tokens, members);
            tokens.expect_sign(")");
            return inner;
        }
        Target target{.name = tokens.expect(Token::Kind::name, "a name").text};
        if (members && tokens.take_sign(".")) target.member = tokens.expect(Token::Kind::name, "a name").text;
        return target;
    };
    Target first = one();
    if (!tokens.is_sign(",")) return first;
    Target several;
    several.parts.push_back(std::move(first));
    while (tokens.take_sign(",")) {
        if (tokens.is_name("in") || tokens.is_sign("=") || tokens.is_sign(")")) break;
        several.parts.push_back(one());
    }
    return several;
}

}  // namespace coda::jinja
