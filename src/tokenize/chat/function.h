// Values that can be called, and those that only have attributes: loop and namespace().
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/tokenize/chat/value.h"

namespace coda::jinja {

struct Statement;
struct Scope;

/// The variables of a scope. A macro's scope outlives its block, so the interpreter owns all of them.
struct Scope {
    Scope* parent = nullptr;
    bool kept = false;  // a macro was defined here
    std::unordered_map<std::string, Value> variables{};
};

struct Loop {
    std::vector<Value> items{};
    std::size_t index = 0;
    std::vector<Value> changed{};  // what loop.changed() was given last
    bool asked = false;            // whether it was
};

struct Function {
    enum class Kind { builtin, method, macro, names, loop };
    Kind kind = Kind::builtin;
    std::string name{};                // builtin: as in a template; method: "split"
    Value self{};                      // method
    const Statement* macro = nullptr;  // macro
    Scope* scope = nullptr;            // macro: where it was defined; names: the members
    std::weak_ptr<Loop> loop{};        // loop, and its methods; gone when the loop has ended
};

struct Arguments {
    std::vector<Value> positional{};
    std::vector<std::pair<std::string, Value>> named{};
};

}  // namespace coda::jinja
