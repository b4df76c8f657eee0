#include <utility>

#include "src/tokenize/chat/interpreter.h"
#include "src/tokenize/chat/operators.h"
#include "src/tokenize/chat/scopes.h"
#include "src/tokenize/chat/value_text.h"

namespace coda::jinja {

using Kind = Statement::Kind;

OriginText Interpreter::render(const Body& body) {
    try {
        return captured(body);
    } catch (const Error& error) {
        throw Error(text("line ", line_, ": ", error.what()));
    }
}

OriginText Interpreter::captured(const Body& body) {
    OriginText result;
    OriginText* const outer = std::exchange(out_, &result);
    run(body);
    out_ = outer;
    return result;
}

void Interpreter::print(const OriginText& text) {
    budget_.check_text(out_->size() + text.size());
    budget_.spend(1 + text.cost() / 64);
    if (generation_ > 0) {
        OriginText marked = text;
        marked.mark_generation();
        out_->append(marked);
    } else {
        out_->append(text);
    }
}

constexpr std::size_t kNodesOfKeptScope = 50;  // its memory is held until the end

Interpreter::Flow Interpreter::run(const Body& body) {
    for (const Statement& statement : body) {
        const Flow flow = run(statement);
        if (flow != Flow::on) return flow;
    }
    return Flow::on;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
    budget_.spend(1);
    line_ = statement.line;
    const Deeper deeper(depth_);
    switch (statement.kind) {
        case Kind::data: print(statement.value.text()); break;
        case Kind::print: {
            const Value value = evaluate(*statement.expressions[0]);
            if (value.is(Value::Kind::text)) {
                print(value.text());
            } else {
                print(str(value, budget_));
            }
            break;
        }
        case Kind::branch: return branch(statement);
        case Kind::loop: return loop(statement);
        case Kind::set: assign(statement.target, evaluate(*statement.expressions[0])); break;
        case Kind::capture: {
            Value value;
            {
                const Inner inner(scope_, scope_, kept_);
                value = Value(captured(statement.bodies[0]));
            }
            if (statement.expressions[0]) {
                const Value* const outer = std::exchange(input_, &value);
                Value filtered = evaluate(*statement.expressions[0]);
                input_ = outer;
                value = std::move(filtered);
            }
            assign(statement.target, std::move(value));
            break;
        }
        case Kind::macro:
            for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
                if (!std::exchange(scope->kept, true)) budget_.spend(kNodesOfKeptScope);
            }
            scope_->variables[statement.text] = Value(std::make_shared<const Function>(
                Function{.kind = Function::Kind::macro, .name = statement.text, .macro = &statement, .scope = scope_}));
            break;
        case Kind::generation: {
            const Inner inner(scope_, scope_, kept_);
            ++generation_;
            run(statement.bodies[0]);
            --generation_;
            break;
        }
        case Kind::leave: return Flow::leave;
        case Kind::next: return Flow::next;
        case Kind::unsupported: throw Error(text(statement.text, " is not supported"));
    }
    return Flow::on;
}

Interpreter::Flow Interpreter::branch(const Statement& statement) {
    for (std::size_t i = 0; i < statement.expressions.size(); ++i) {
        if (evaluate(*statement.expressions[i]).truth()) return run(statement.bodies[i]);
    }
    const bool otherwise = statement.bodies.size() > statement.expressions.size();
    return otherwise ? run(statement.bodies.back()) : Flow::on;
}

Interpreter::Flow Interpreter::loop(const Statement& statement) {
    std::vector<Value> items = items_of(evaluate(*statement.expressions[0]), budget_);
    if (const Expression* condition = statement.expressions[1].get()) {
        std::vector<Value> chosen;
        for (Value& item : items) {
            const Inner inner(scope_, scope_, kept_);
            assign(statement.target, item);
            if (evaluate(*condition).truth()) chosen.push_back(std::move(item));
        }
        items = std::move(chosen);
    }
    if (items.empty() && statement.bodies.size() > 1) {
        const Inner inner(scope_, scope_, kept_);
        return run(statement.bodies[1]);
    }
    const auto state = std::make_shared<Loop>();
    state->items = std::move(items);
    const Value variable(std::make_shared<const Function>(Function{.kind = Function::Kind::loop, .loop = state}));
    for (; state->index < state->items.size(); ++state->index) {
        budget_.spend(1);
        const Inner inner(scope_, scope_, kept_);
        scope_->variables["loop"] = variable;
        assign(statement.target, state->items[state->index]);
        if (run(statement.bodies[0]) == Flow::leave) break;
    }
    return Flow::on;
}

void Interpreter::assign(const Target& target, Value value) {
    if (!target.parts.empty()) {
        const std::vector<Value> items = items_of(value, budget_);
        require(items.size() == target.parts.size(), items.size(), " values for ", target.parts.size(), " names");
        for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
        return;
    }
    if (target.member.empty()) {
        scope_->variables[target.name] = std::move(value);
        return;
    }
    const Value object = name(target.name);
    const bool is_namespace = object.is(Value::Kind::function) && object.function().kind == Function::Kind::names;
    require(is_namespace, "the member ", target.member, " can only be set in a namespace()");
    object.function().scope->variables[target.member] = std::move(value);
}

}  // namespace coda::jinja
