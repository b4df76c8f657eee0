#include <algorithm>
#include <utility>

#include "src/tokenize/chat/arguments.h"
#include "src/tokenize/chat/interpreter.h"
#include "src/tokenize/chat/methods.h"
#include "src/tokenize/chat/operators.h"
#include "src/tokenize/chat/scopes.h"
#include "src/tokenize/chat/value_text.h"

namespace coda::jinja {
namespace {

using Kind = Value::Kind;

/// Those that Jinja and transformers have; not all are supported.
constexpr std::string_view kBuiltins[] = {"namespace", "raise_exception", "range",  "strftime_now",
                                          "dict",      "cycler",          "joiner", "lipsum"};

}  // namespace

bool Interpreter::is_builtin(const std::string& name) {
    return std::find(std::begin(kBuiltins), std::end(kBuiltins), name) != std::end(kBuiltins);
}

Value Interpreter::call(const Value& value, const Arguments& given) {
    require_defined(value);
    require(value.is(Kind::function), "a value of type ", value.type(), " is no function");
    const Function& function = value.function();
    switch (function.kind) {
        case Function::Kind::builtin: return call_builtin(function.name, given);
        case Function::Kind::method: return call_method(function.self, function.name, given, budget_);
        case Function::Kind::macro: return call_macro(function, given);
        case Function::Kind::loop: return call_loop(function, given);
        case Function::Kind::names: break;
    }
    throw Error("a namespace is no function");
}

Value Interpreter::call_builtin(const std::string& name, const Arguments& given) {
    const std::string what = name + "()";
    if (name == "namespace") return make_namespace(given);
    if (name == "range") return range(given);
    if (name == "raise_exception") {
        const Bound bound(what, given, {"message"});
        throw Error("the template refuses: " + str(bound[0], budget_).bytes());
    }
    if (name == "strftime_now") {
        const Bound bound(what, given, {"format"});
        const OriginText& format = bound.text(0);
        for (const OriginText::Run& run : format.runs()) {
            require(run.origin.message < 0, what, " is given a part of a message");
        }
        return Value::of(now_(format.bytes()));
    }
    throw Error(text("the function ", what, " is not supported"));
}

Value Interpreter::range(const Arguments& given) {
    const Bound bound("range()", given, {"start", "stop", "step"});
    const std::int64_t first = bound.whole(0, 0), step = bound.whole(2, 1);
    const bool one = !bound.has(1);
    std::int64_t at = one ? 0 : first;
    const std::int64_t stop = one ? first : bound.whole(1, 0);
    require(bound.has(0), "range() lacks its end");
    require(step != 0, "range() has the step 0");
    std::vector<Value> items;
    while (step > 0 ? at < stop : at > stop) {
        require(static_cast<std::int64_t>(items.size()) < budget_.limits().range, "range() has more than ",
                budget_.limits().range, " elements");
        budget_.spend(1);
        items.emplace_back(at);
        if (__builtin_add_overflow(at, step, &at)) break;
    }
    return make_list(std::move(items), List::Form::range);
}

Value Interpreter::make_namespace(const Arguments& given) {
    Scope& members = namespaces_.emplace_back();
    for (const Value& dict : given.positional) {
        require(given.positional.size() == 1 && dict.is(Kind::dict), "namespace() takes a dict, or names with values");
        for (const auto& [key, value] : dict.dict().entries) {
            require(key.is(Kind::text), "namespace() takes texts as names");
            members.variables[key.text().bytes()] = value;
        }
    }
    for (const auto& [name, value] : given.named) members.variables[name] = value;
    return Value(std::make_shared<const Function>(Function{.kind = Function::Kind::names, .scope = &members}));
}

Value Interpreter::call_macro(const Function& function, const Arguments& given) {
    require(++calls_ <= budget_.limits().calls, "macros call each other more than ", budget_.limits().calls, " deep");
    const Statement& macro = *function.macro;
    const std::string what = "the macro " + macro.text;
    const auto& parameters = macro.parameters;
    require(given.positional.size() <= parameters.size(), what, " takes at most ", parameters.size(), " arguments");
    const Inner inner(scope_, function.scope, kept_);
    for (const auto& [name, value] : given.named) {
        const auto found = std::find(parameters.begin(), parameters.end(), name);
        require(found != parameters.end(), what, " has no parameter ", name);
        require(found - parameters.begin() >= static_cast<std::ptrdiff_t>(given.positional.size()), what,
                " has two values of ", name);
        scope_->variables[name] = value;
    }
    const std::size_t without = parameters.size() - macro.expressions.size();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        Value& value = scope_->variables.try_emplace(parameters[i], Value::undefined("")).first->second;
        if (i < given.positional.size()) {
            value = given.positional[i];
        } else if (value.is(Kind::undefined) && value.why().empty()) {
            Value chosen = i >= without ? evaluate(*macro.expressions[i - without])
                                        : Value::undefined(text("the parameter ", parameters[i], " has no value"));
            scope_->variables[parameters[i]] = std::move(chosen);
        }
    }
    Value result(captured(macro.bodies[0]));
    --calls_;
    return result;
}

Value Interpreter::call_loop(const Function& function, const Arguments& given) {
    require(given.named.empty() && !function.name.empty(), "loop() is not supported");
    const std::shared_ptr<Loop> state = function.loop.lock();
    require(state != nullptr, "loop is used after its loop");
    Loop& loop = *state;
    if (function.name == "cycle") {
        require(!given.positional.empty(), "loop.cycle() has nothing to choose from");
        return given.positional[loop.index % given.positional.size()];
    }
    const auto& before = loop.changed;
    for (std::size_t i = 0; i < std::min(before.size(), given.positional.size()); ++i) {
        budget_.spend(1 + comparison_cost(before[i], given.positional[i]));
    }
    const bool same =
        loop.asked && std::equal(before.begin(), before.end(), given.positional.begin(), given.positional.end(), equal);
    loop.changed = given.positional;
    loop.asked = true;
    return Value(!same);
}

}  // namespace coda::jinja
