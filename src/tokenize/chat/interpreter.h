// Renders a parsed template.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/tokenize/chat/budget.h"
#include "src/tokenize/chat/function.h"
#include "src/tokenize/chat/syntax.h"

namespace coda::jinja {

class Interpreter {
  public:
    /// What strftime_now(format) gives.
    using Now = std::function<std::string(const std::string& format)>;
    Interpreter(Budget& budget, const Now& now) : budget_(budget), now_(now) {}

    void define(const std::string& name, Value value) { top_.variables[name] = std::move(value); }

    /// Throws Error "line N: ...".
    OriginText render(const Body& body);

  private:
    enum class Flow : std::uint8_t { on, leave, next };

    // statements.cpp
    Flow run(const Body& body);
    Flow run(const Statement& statement);
    Flow branch(const Statement& statement);
    Flow loop(const Statement& statement);
    void assign(const Target& target, Value value);
    OriginText captured(const Body& body);
    void print(const OriginText& text);

    // evaluate.cpp
    Value evaluate(const Expression& expression);
    Value evaluate_kind(const Expression& expression);
    Value dict(const Expression& expression);
    Value item_of(const Expression& expression);
    Value arithmetic_of(const Expression& expression);
    Value filter(const Expression& expression);
    Value concat(const Expression& expression);
    bool compare(const Expression& expression);
    Value name(const std::string& name) const;
    Arguments arguments(const Expression& expression);

    // functions.cpp
    Value call(const Value& function, const Arguments& given);
    Value call_builtin(const std::string& name, const Arguments& given);
    Value call_macro(const Function& function, const Arguments& given);
    Value call_loop(const Function& function, const Arguments& given);
    Value range(const Arguments& given);
    Value make_namespace(const Arguments& given);
    static bool is_builtin(const std::string& name);

    Budget& budget_;
    const Now& now_;
    Scope top_{};
    Scope* scope_ = &top_;
    std::deque<Scope> namespaces_;              // never part of a value: a namespace may hold itself
    std::vector<std::unique_ptr<Scope>> kept_;  // of blocks that have ended, which a macro may still see
    OriginText* out_ = nullptr;
    const Value* input_ = nullptr;  // of a set block's innermost filter
    int generation_ = 0, calls_ = 0, depth_ = 0, line_ = 1;
};

}  // namespace coda::jinja
