#include "src/tokenize/chat/conditions.h"

#include <utility>

#include "src/tokenize/chat/arguments.h"
#include "src/tokenize/chat/operators.h"

namespace coda::jinja {
namespace {

using Kind = Value::Kind;

/// Tests that are comparisons: their names, and the operator.
constexpr std::pair<std::string_view, const char*> kComparisons[] = {
    {"eq", "=="}, {"equalto", "=="}, {"==", "=="}, {"ne", "!="}, {"!=", "!="},         {"lt", "<"},
    {"<", "<"},   {"lessthan", "<"}, {"gt", ">"},  {">", ">"},   {"greaterthan", ">"}, {"le", "<="},
    {"<=", "<="}, {"ge", ">="},      {">=", ">="}, {"in", "in"}};

bool is_iterable(const Value& value) {
    return value.is(Kind::undefined) || value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::dict);
}

bool is_sequence(const Value& value) { return is_iterable(value) && (!value.is(Kind::list) || value.list().indexed()); }

}  // namespace

bool holds(const std::string& name, const Value& value, const Arguments& given, Budget& budget) {
    const std::string what = "the test " + name;
    for (const auto& [test, sign] : kComparisons) {
        if (name == test) return compares(sign, value, Bound(what, given, {"other"})[0], budget);
    }
    const std::pair<std::string_view, bool> simple[] = {
        {"defined", !value.is(Kind::undefined)},
        {"undefined", value.is(Kind::undefined)},
        {"none", value.is(Kind::null)},
        {"string", value.is(Kind::text)},
        {"mapping", value.is(Kind::dict)},
        {"iterable", is_iterable(value)},
        {"sequence", is_sequence(value)},
        {"number", value.is_number()},
        {"integer", value.is(Kind::integer)},
        {"float", value.is(Kind::real)},
        {"boolean", value.is(Kind::boolean)},
        {"true", value.is(Kind::boolean) && value.boolean()},
        {"false", value.is(Kind::boolean) && !value.boolean()},
    };
    for (const auto& [test, result] : simple) {
        if (name != test) continue;
        const Bound none(what, given, {});
        return result;
    }
    const auto remainder = [&](const Value& by) { return arithmetic("%", value, by, budget); };
    if (name == "odd") return equal(remainder(Value(std::int64_t{2})), Value(std::int64_t{1}));
    if (name == "even") return equal(remainder(Value(std::int64_t{2})), Value(std::int64_t{0}));
    if (name == "divisibleby") return equal(remainder(Bound(what, given, {"num"})[0]), Value(std::int64_t{0}));
    throw Error(text(what, " is not supported"));
}

}  // namespace coda::jinja
