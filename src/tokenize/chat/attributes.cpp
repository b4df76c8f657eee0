// object.name: members of loop and namespace(), methods, keys.
#include <utility>

#include "src/tokenize/chat/function.h"
#include "src/tokenize/chat/methods.h"
#include "src/tokenize/chat/operators.h"

namespace coda::jinja {
namespace {

using Kind = Value::Kind;

Value loop_member(const Function& function, const std::string& name) {
    const std::shared_ptr<const Loop> state = function.loop.lock();
    require(state != nullptr, "loop is used after its loop");
    const Loop& loop = *state;
    const auto size = static_cast<std::int64_t>(loop.items.size()), index = static_cast<std::int64_t>(loop.index);
    const std::pair<std::string_view, std::int64_t> numbers[] = {{"index", index + 1},
                                                                 {"index0", index},
                                                                 {"revindex", size - index},
                                                                 {"revindex0", size - index - 1},
                                                                 {"length", size},
                                                                 {"depth", 1},
                                                                 {"depth0", 0}};
    for (const auto& [member, value] : numbers) {
        if (name == member) return Value(value);
    }
    if (name == "first") return Value(index == 0);
    if (name == "last") return Value(index + 1 == size);
    if (name == "previtem") {
        return index > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
    }
    if (name == "nextitem") {
        return index + 1 < size ? loop.items[loop.index + 1] : Value::undefined("there is no next item");
    }
    if (name != "cycle" && name != "changed") return Value::undefined(text("loop has no member ", name));
    return Value(
        std::make_shared<const Function>(Function{.kind = Function::Kind::loop, .name = name, .loop = function.loop}));
}

}  // namespace

Value attribute(const Value& object, const std::string& name, Budget& budget) {
    require_defined(object);
    if (object.is(Kind::function)) {
        const Function& function = object.function();
        if (function.kind == Function::Kind::loop && function.name.empty()) return loop_member(function, name);
        if (function.kind == Function::Kind::names) {
            const auto found = function.scope->variables.find(name);
            return found != function.scope->variables.end() ? found->second
                                                            : Value::undefined(text("the namespace has no ", name));
        }
        throw Error(text("the attribute ", name, " of a function is not supported"));
    }
    if (has_method(object, name)) {
        return Value(
            std::make_shared<const Function>(Function{.kind = Function::Kind::method, .name = name, .self = object}));
    }
    if (object.is(Kind::dict)) {
        budget.spend(object.dict().entries.size() * (1 + name.size() / 64) / 8);
        if (const Value* found = object.dict().find(name)) return *found;
    }
    const std::string type = object.is(Kind::null) ? "None" : object.type();
    return Value::undefined(text("a value of type ", type, " has no attribute ", name));
}

}  // namespace coda::jinja
