#include "src/tokenize/chat/parse.h"

#include <initializer_list>
#include <utility>

#include "src/core/utf8.h"
#include "src/tokenize/chat/parse_expression.h"

namespace coda::jinja {
namespace {

using Kind = Statement::Kind;
using Names = std::initializer_list<std::string_view>;

class Parser {
  public:
    Parser(std::string_view source, const ChatLimits& limits) : tokens_(tokens_of(source), limits.nesting) {}

    Body parse() {
        Body body = statements({});
        if (!tokens_.is(Token::Kind::end)) tokens_.fail("unexpected " + tokens_.found());
        return body;
    }

  private:
    /// Up to a tag that begins with one of `ends`, whose name is the current token then, or to the template's end.
    Body statements(Names ends) {
        const TokenStream::Nested nested(tokens_);
        Body body;
        while (!tokens_.is(Token::Kind::end)) {
            const Token token = tokens_.next();
            if (token.kind == Token::Kind::data) {
                body.push_back(make(Kind::data, token.line));
                body.back().value = Value::of(token.text);
            } else if (token.kind == Token::Kind::print_begin) {
                body.push_back(make(Kind::print, token.line));
                body.back().expressions.push_back(parse_tuple(tokens_));
                tokens_.expect(Token::Kind::print_end, "\"}}\"");
            } else {
                for (const std::string_view end : ends) {
                    if (tokens_.is_name(end)) return body;
                }
                body.push_back(statement());
                end_tag();
            }
        }
        if (ends.size() > 0) tokens_.fail(text("expected \"", *(ends.end() - 1), "\""));
        return body;
    }

    static Statement make(Kind kind, int line) {
        Statement result;
        result.kind = kind;
        result.line = line;
        return result;
    }

    void end_tag() { tokens_.expect(Token::Kind::block_end, "\"%}\""); }

    /// The statements of a tag that ends here, and the name that ends them.
    Body body(Names ends) {
        end_tag();
        return statements(ends);
    }

    Statement statement() {
        const Token name = tokens_.expect(Token::Kind::name, "a tag's name");
        Statement result = make(Kind::unsupported, name.line);
        if (name.text == "if") {
            branch(result);
        } else if (name.text == "for") {
            loop(result);
        } else if (name.text == "set") {
            set(result);
        } else if (name.text == "macro") {
            macro(result);
        } else if (name.text == "generation") {
            result.kind = Kind::generation;
            result.bodies.push_back(inner_body({"endgeneration"}));
            tokens_.next();
        } else if (name.text == "break" || name.text == "continue") {
            if (loops_ == 0) tokens_.fail(text("\"", name.text, "\" outside of a loop"));
            result.kind = name.text == "break" ? Kind::leave : Kind::next;
        } else {
            other(name.text, result);
        }
        return result;
    }

    void branch(Statement& result) {
        result.kind = Kind::branch;
        do {
            result.expressions.push_back(parse_tuple(tokens_, false));
            result.bodies.push_back(body({"elif", "else", "endif"}));
        } while (tokens_.take_name("elif"));
        if (tokens_.take_name("else")) result.bodies.push_back(body({"endif"}));
        tokens_.next();
    }

    void loop(Statement& result) {
        result.kind = Kind::loop;
        result.target = parse_target(tokens_, false);
        if (!tokens_.take_name("in")) tokens_.fail("expected \"in\", found " + tokens_.found());
        result.expressions.push_back(parse_tuple(tokens_, false, "recursive"));
        result.expressions.push_back(tokens_.take_name("if") ? parse_expression(tokens_) : nullptr);
        const bool recursive = tokens_.take_name("recursive");
        ++loops_;
        result.bodies.push_back(body({"endfor", "else"}));
        --loops_;
        if (tokens_.take_name("else")) result.bodies.push_back(body({"endfor"}));
        tokens_.next();
        if (recursive) result = lacking("a recursive loop", result.line);
    }

    void set(Statement& result) {
        result.target = parse_target(tokens_, true);
        if (tokens_.take_sign("=")) {
            result.kind = Kind::set;
            result.expressions.push_back(parse_tuple(tokens_));
            return;
        }
        result.kind = Kind::capture;
        result.expressions.push_back(parse_filters(tokens_, nullptr));
        result.bodies.push_back(inner_body({"endset"}));
        tokens_.next();
    }

    void macro(Statement& result) {
        result.kind = Kind::macro;
        result.text = tokens_.expect(Token::Kind::name, "a macro's name").text;
        tokens_.expect_sign("(");
        while (!tokens_.is_sign(")")) {
            if (!result.parameters.empty()) tokens_.expect_sign(",");
            result.parameters.push_back(tokens_.expect(Token::Kind::name, "a parameter's name").text);
            if (tokens_.take_sign("=")) {
                result.expressions.push_back(parse_expression(tokens_));
            } else if (!result.expressions.empty()) {
                tokens_.fail("a parameter without a default follows one with a default");
            }
        }
        tokens_.next();
        result.bodies.push_back(inner_body({"endmacro"}));
        tokens_.next();
    }

    /// A body that is rendered by itself, which no loop around it can be left from.
    Body inner_body(Names ends) {
        const int outer = std::exchange(loops_, 0);
        Body result = body(ends);
        loops_ = outer;
        return result;
    }

    static Statement lacking(const std::string& what, int line) {
        Statement result = make(Kind::unsupported, line);
        result.text = what;
        return result;
    }

    /// A tag of Jinja that is not in the subset: skipped, with what belongs to it.
    void other(const std::string& name, Statement& result) {
        constexpr std::string_view kAlone[] = {"include", "import", "from", "extends", "do", "print"};
        constexpr std::string_view kWithBody[] = {"call", "filter", "with", "block", "autoescape", "trans"};
        bool known = false, with_body = false;
        for (const std::string_view each : kAlone) known = known || name == each;
        for (const std::string_view each : kWithBody) with_body = with_body || name == each;
        if (!known && !with_body) tokens_.fail(text("unknown tag \"", printable(name, ""), "\""));
        result = lacking(text("the tag \"", name, "\""), result.line);
        while (!tokens_.is(Token::Kind::block_end) && !tokens_.is(Token::Kind::end)) tokens_.next();
        if (!with_body) return;
        const std::string end = "end" + name;
        body({end});
        while (!tokens_.is(Token::Kind::block_end) && !tokens_.is(Token::Kind::end)) tokens_.next();
    }

    TokenStream tokens_;
    int loops_ = 0;
};

}  // namespace

Body parse(std::string_view source, const ChatLimits& limits) {
    require(source.size() <= limits.source, "the template has more than ", limits.source, " bytes");
    require(valid_utf8(source) == source.size(), "the template is not UTF-8 at byte ", valid_utf8(source));
    return Parser(source, limits).parse();
}

}  // namespace coda::jinja
