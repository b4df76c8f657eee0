// A parsed template.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/tokenize/chat/value.h"

namespace coda::jinja {

struct Expression {
    enum class Kind : std::uint8_t {
        constant,     // value
        name,         // text
        list,         // parts
        tuple,        // parts
        dict,         // parts: key, value, key, ...
        attribute,    // parts[0].text
        item,         // parts[0][parts[1]]
        slice,        // parts: start, stop, step, each may be null; only as an item's parts[1]
        call,         // parts[0](rest)
        filter,       // parts[0] | text(rest)
        test,         // parts[0] is text(rest)
        arithmetic,   // parts, with words between them: "a + b - c"
        concat,       // parts
        compare,      // parts, with words between them: "a < b <= c"
        all,          // and
        any,          // or
        negation,     // not
        minus,        // -parts[0]
        plus,         // +parts[0]
        conditional,  // parts[0] if parts[1] else parts[2], which may be null
        unsupported   // text: what the subset lacks
    };
    Kind kind = Kind::constant;
    int line = 1;
    std::string text{};
    Value value{};
    std::vector<std::unique_ptr<Expression>> parts{};
    std::vector<std::string> words{};  // operators; of call, filter and test: the names of the last arguments
};
using ExpressionPtr = std::unique_ptr<Expression>;

/// What is assigned to: a name, a namespace's member, or several targets.
struct Target {
    std::string name{}, member{};
    std::vector<Target> parts{};
};

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
    enum class Kind : std::uint8_t {
        data,        // value
        print,       // expressions[0]
        branch,      // expressions and their bodies; one more body: else
        loop,        // for target in expressions[0] if expressions[1], which may be null; bodies: body, else
        set,         // target = expressions[0]
        capture,     // target = bodies[0] as text, through expressions[0], whose innermost input is null, or null
        macro,       // text; parameters; expressions: defaults of the last ones
        generation,  // bodies[0]
        leave,       // break
        next,        // continue
        unsupported  // text
    };
    Kind kind = Kind::data;
    int line = 1;
    std::string text{};
    Value value{};
    Target target{};
    std::vector<std::string> parameters{};
    std::vector<ExpressionPtr> expressions{};
    std::vector<Body> bodies{};
};

}  // namespace coda::jinja
