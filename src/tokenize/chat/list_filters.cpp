#include "src/tokenize/chat/list_filters.h"

#include <algorithm>
#include <utility>

#include "src/tokenize/chat/arguments.h"
#include "src/tokenize/chat/conditions.h"
#include "src/tokenize/chat/filter_call.h"
#include "src/tokenize/chat/filters.h"
#include "src/tokenize/chat/operators.h"
#include "src/tokenize/chat/text_methods.h"
#include "src/tokenize/chat/value_text.h"

namespace coda::jinja {
namespace {

using Kind = Value::Kind;

constexpr int kMostSteps = 100;

/// A member by its dotted path; numbers are indices.
Value member(const Value& object, const Value& path, Budget& budget) {
    if (!path.is(Kind::text)) return item(object, path, budget);
    Value value = object;
    std::string_view rest = path.text().bytes();
    for (int steps = 1;; ++steps) {
        require(steps <= kMostSteps, "a path to a member has more than ", kMostSteps, " steps");
        budget.spend(1);
        const std::size_t dot = std::min(rest.find('.'), rest.size());
        const std::string name(rest.substr(0, dot));
        const bool index = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
        value = item(value, index ? Value(std::int64_t{std::stol(name)}) : Value::of(name), budget);
        if (dot == rest.size()) return value;
        rest.remove_prefix(dot + 1);
    }
}

/// The arguments after the first `count`.
Arguments after(const Arguments& given, std::size_t count) {
    Arguments rest = given;
    rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
    return rest;
}

const OriginText& first_text(const FilterCall& call, std::size_t index) {
    require(call.given.positional.size() > index && call.given.positional[index].is(Kind::text), call.what,
            ": a name is expected");
    return call.given.positional[index].text();
}

Value map(const FilterCall& call) {
    std::vector<Value> results;
    if (call.given.positional.empty()) {
        const Bound given = Bound(call.what, call.given, {"attribute", "default"});
        for (const Value& each : call.items()) {
            Value value = member(each, given[0], call.budget);
            results.push_back(value.is(Kind::undefined) && given.has(1) ? given[1] : std::move(value));
        }
    } else {
        const std::string filter = first_text(call, 0).bytes();
        const Arguments rest = after(call.given, 1);
        for (const Value& each : call.items()) {
            call.budget.spend(1);
            results.push_back(filtered(filter, each, rest, call.budget));
        }
    }
    return make_list(std::move(results), List::Form::lazy);
}

/// select, reject, selectattr, rejectattr.
Value choose(const FilterCall& call, bool by_attribute, bool wanted) {
    const std::size_t test = by_attribute ? 1 : 0;
    if (by_attribute) require(!call.given.positional.empty(), call.what, ": an attribute is expected");
    const bool tested = call.given.positional.size() > test;
    const std::string name = tested ? first_text(call, test).bytes() : "";
    const Arguments rest = tested ? after(call.given, test + 1) : Arguments{};
    std::vector<Value> results;
    for (const Value& each : call.items()) {
        call.budget.spend(1);
        const Value value = by_attribute ? member(each, call.given.positional[0], call.budget) : each;
        if ((tested ? holds(name, value, rest, call.budget) : value.truth()) == wanted) results.push_back(each);
    }
    return make_list(std::move(results), List::Form::lazy);
}

Value join(const FilterCall& call) {
    const Bound given = call.bound({"d", "attribute"});
    const OriginText separator = given.has(0) ? str(given[0], call.budget) : OriginText();
    OriginText result;
    bool first = true;
    for (const Value& each : call.items()) {
        if (!std::exchange(first, false)) result.append(separator);
        result.append(str(given.has_none(1) ? each : member(each, given[1], call.budget), call.budget));
        call.budget.check_text(result.size());
        call.budget.spend(1 + (separator.cost() + each.weight()) / 64);
    }
    call.budget.spend_text(result);
    return Value(std::move(result));
}

Value items(const FilterCall& call) {
    call.bound({});
    std::vector<Value> pairs;
    if (!call.value.is(Kind::undefined)) {
        require(call.value.is(Kind::dict), call.what, " takes a dict, found ", call.value.type());
        for (const auto& [key, value] : call.value.dict().entries) {
            call.budget.spend(1);
            pairs.push_back(make_list({key, value}, List::Form::tuple));
        }
    }
    return make_list(std::move(pairs), List::Form::lazy);
}

Value dictsort(const FilterCall& call) {
    const Bound given = call.bound({"case_sensitive", "by", "reverse"});
    require_defined(call.value);
    require(call.value.is(Kind::dict), call.what, " takes a dict, found ", call.value.type());
    const std::string by = given.has(1) ? given.text(1).bytes() : "key";
    require(by == "key" || by == "value", call.what, ": by is key or value, found ", by);
    std::vector<std::pair<Value, Value>> keyed;
    for (const auto& [key, value] : call.value.dict().entries) {
        Value order = by == "key" ? key : value;
        if (order.is(Kind::text) && !given.truth(0)) order = Value(with_case(order.text(), Case::lower));
        call.budget.spend(1 + 4 * order.weight());
        keyed.emplace_back(std::move(order), make_list({key, value}, List::Form::tuple));
    }
    const bool reverse = given.truth(2);
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
        call.budget.spend(1 + std::min(a.first.weight(), b.first.weight()) / 8);
        return reverse ? less(b.first, a.first) : less(a.first, b.first);
    });
    std::vector<Value> pairs;
    for (auto& [order, pair] : keyed) pairs.push_back(std::move(pair));
    return make_list(std::move(pairs));
}

Value reverse(const FilterCall& call) {
    call.bound({});
    if (call.value.is(Kind::text)) {
        call.budget.spend_text(call.value.text());
        return Value(reversed(call.value.text()));
    }
    std::vector<Value> all = call.items();
    std::reverse(all.begin(), all.end());
    return make_list(std::move(all), List::Form::lazy);
}

Value first_or_last(const FilterCall& call, bool first) {
    call.bound({});
    if (call.value.is(Kind::undefined)) return Value::undefined("there is no item: the sequence is empty");
    const bool lazy = call.value.is(Kind::list) && call.value.list().form == List::Form::lazy;
    require(first || !lazy, call.what, " of a generator is not supported");
    if (lazy) {  // takes one
        auto& rest = call.value.list().items;
        if (rest.empty()) return Value::undefined("there is no item: the sequence is empty");
        call.budget.spend(rest.size());
        Value value = std::move(rest.front());
        rest.erase(rest.begin());
        return value;
    }
    const std::vector<Value> all = call.items();
    if (all.empty()) return Value::undefined("there is no item: the sequence is empty");
    return first ? all.front() : all.back();
}

Value list(const FilterCall& call) {
    call.bound({});
    return make_list(call.items());
}

}  // namespace

std::optional<Value> list_filtered(const std::string& name, const Value& value, const Arguments& given,
                                   Budget& budget) {
    const std::string what = "the filter " + name;
    const FilterCall call{what, value, given, budget};
    if (name == "map") return map(call);
    if (name == "select") return choose(call, false, true);
    if (name == "reject") return choose(call, false, false);
    if (name == "selectattr") return choose(call, true, true);
    if (name == "rejectattr") return choose(call, true, false);
    if (name == "join") return join(call);
    if (name == "items") return items(call);
    if (name == "dictsort") return dictsort(call);
    if (name == "reverse") return reverse(call);
    if (name == "first") return first_or_last(call, true);
    if (name == "last") return first_or_last(call, false);
    if (name == "list") return list(call);
    return std::nullopt;
}

}  // namespace coda::jinja
