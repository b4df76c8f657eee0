#include <utility>

#include "src/tokenize/chat/conditions.h"
#include "src/tokenize/chat/filters.h"
#include "src/tokenize/chat/interpreter.h"
#include "src/tokenize/chat/operators.h"
#include "src/tokenize/chat/scopes.h"
#include "src/tokenize/chat/value_text.h"

namespace coda::jinja {

using Kind = Expression::Kind;

Value Interpreter::evaluate(const Expression& expression) {
    budget_.spend(1);
    const Deeper deeper(depth_);
    const int outer = std::exchange(line_, expression.line);
    Value value = evaluate_kind(expression);
    line_ = outer;
    return value;
}

Value Interpreter::evaluate_kind(const Expression& expression) {
    const auto part = [&](std::size_t i) { return evaluate(*expression.parts[i]); };
    switch (expression.kind) {
        case Kind::constant: return expression.value;
        case Kind::name: return name(expression.text);
        case Kind::list:
        case Kind::tuple: {
            std::vector<Value> items;
            for (const ExpressionPtr& each : expression.parts) items.push_back(evaluate(*each));
            return make_list(std::move(items), expression.kind == Kind::list ? List::Form::list : List::Form::tuple);
        }
        case Kind::dict: return dict(expression);
        case Kind::attribute: return attribute(part(0), expression.text, budget_);
        case Kind::item: return item_of(expression);
        case Kind::slice: break;
        case Kind::call: {
            const Value function = part(0);
            return call(function, arguments(expression));
        }
        case Kind::filter: return filter(expression);
        case Kind::test: {
            const Value value = part(0);
            return Value(holds(expression.text, value, arguments(expression), budget_));
        }
        case Kind::arithmetic: return arithmetic_of(expression);
        case Kind::concat: return concat(expression);
        case Kind::compare: return Value(compare(expression));
        case Kind::all:
        case Kind::any: {
            Value value;
            for (const ExpressionPtr& each : expression.parts) {
                value = evaluate(*each);
                if (value.truth() == (expression.kind == Kind::any)) break;
            }
            return value;
        }
        case Kind::negation: return Value(!part(0).truth());
        case Kind::minus: return negative(part(0));
        case Kind::plus: return negative(negative(part(0)));
        case Kind::conditional:
            if (part(1).truth()) return part(0);
            return expression.parts[2] ? part(2) : Value::undefined("the inline \"if\" has no \"else\"");
        case Kind::unsupported: break;
    }
    throw Error(text(expression.text, " is not supported"));
}

Value Interpreter::name(const std::string& name) const {
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
        const auto found = scope->variables.find(name);
        if (found != scope->variables.end()) return found->second;
    }
    if (is_builtin(name)) return Value(std::make_shared<const Function>(Function{.name = name}));
    const bool of_macro = name == "varargs" || name == "kwargs" || name == "caller";
    require(!of_macro || calls_ == 0, "\"", name, "\" of a macro is not supported");
    return Value::undefined(text("\"", name, "\" is undefined"));
}

Value Interpreter::dict(const Expression& expression) {
    Dict result;
    for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
        Value key = evaluate(*expression.parts[i]);
        const bool hashable =
            !key.is(Value::Kind::dict) && (!key.is(Value::Kind::list) || key.list().form == List::Form::tuple);
        require(hashable, "a value of type ", key.type(), " is no key of a dict");
        budget_.spend(result.entries.size() * key.weight() / 8);
        result.set(std::move(key), evaluate(*expression.parts[i + 1]));
    }
    return make_dict(std::move(result));
}

Value Interpreter::item_of(const Expression& expression) {
    const Value object = evaluate(*expression.parts[0]);
    const Expression& key = *expression.parts[1];
    if (key.kind != Kind::slice) return item(object, evaluate(key), budget_);
    const auto bound = [&](std::size_t i) { return key.parts[i] ? evaluate(*key.parts[i]) : Value(); };
    const Value start = bound(0), stop = bound(1), step = bound(2);
    return slice(object, start, stop, step, budget_);
}

Value Interpreter::filter(const Expression& expression) {
    const Value value = expression.parts[0] ? evaluate(*expression.parts[0]) : *input_;
    return filtered(expression.text, value, arguments(expression), budget_);
}

Value Interpreter::arithmetic_of(const Expression& expression) {
    Value value = evaluate(*expression.parts[0]);
    for (std::size_t i = 1; i < expression.parts.size(); ++i) {
        value = arithmetic(expression.words[i - 1], value, evaluate(*expression.parts[i]), budget_);
    }
    return value;
}

Value Interpreter::concat(const Expression& expression) {
    OriginText result;
    for (const ExpressionPtr& each : expression.parts) {
        result.append(str(evaluate(*each), budget_));
        budget_.check_text(result.size());
    }
    budget_.spend_text(result);
    return Value(std::move(result));
}

bool Interpreter::compare(const Expression& expression) {
    Value left = evaluate(*expression.parts[0]);
    for (std::size_t i = 1; i < expression.parts.size(); ++i) {
        Value right = evaluate(*expression.parts[i]);
        if (!compares(expression.words[i - 1], left, right, budget_)) return false;
        left = std::move(right);
    }
    return true;
}

Arguments Interpreter::arguments(const Expression& expression) {
    Arguments result;
    const std::size_t named = expression.words.size(), count = expression.parts.size();
    for (std::size_t i = 1; i < count - named; ++i) result.positional.push_back(evaluate(*expression.parts[i]));
    for (std::size_t i = 0; i < named; ++i) {
        result.named.emplace_back(expression.words[i], evaluate(*expression.parts[count - named + i]));
    }
    return result;
}

}  // namespace coda::jinja
