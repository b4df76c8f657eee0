#include "src/tokenize/chat/value.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "src/tokenize/chat/function.h"

namespace coda::jinja {
namespace {

using Kind = Value::Kind;

/// Of two numbers. long double holds every int64_t.
long double wide(const Value& value) {
    return value.is_whole() ? static_cast<long double>(value.whole()) : static_cast<long double>(value.real());
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

/// Counts a value's part.
void add(int& depth, std::size_t& weight, const Value& part) {
    depth = std::max(depth, part.depth() + 1);
    weight += part.weight();
    require(depth <= kMostValueDepth, "lists and dicts are nested more than ", kMostValueDepth, " deep");
    require(weight <= kMostValueWeight, "a list or dict has more than ", kMostValueWeight, " parts");
}

}  // namespace

Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

Value Value::undefined(std::string why) {
    Value value;
    value.content_ = Undefined{std::make_shared<const std::string>(std::move(why))};
    return value;
}

std::int64_t Value::whole() const { return is(Kind::boolean) ? (boolean() ? 1 : 0) : std::get<std::int64_t>(content_); }

double Value::real() const { return is_whole() ? static_cast<double>(whole()) : std::get<double>(content_); }

bool Value::truth() const {
    switch (kind()) {
        case Kind::undefined:
        case Kind::null: return false;
        case Kind::boolean: return boolean();
        case Kind::integer: return whole() != 0;
        case Kind::real: return real() != 0;
        case Kind::text: return !text().empty();
        case Kind::list: return list().form == List::Form::lazy || !list().items.empty();
        case Kind::dict: return !dict().entries.empty();
        case Kind::function: break;
    }
    return true;
}

std::string Value::type() const {
    switch (kind()) {
        case Kind::undefined: return "Undefined";
        case Kind::null: return "NoneType";
        case Kind::boolean: return "bool";
        case Kind::integer: return "int";
        case Kind::real: return "float";
        case Kind::text: return "str";
        case Kind::dict: return "dict";
        case Kind::function: return function().kind == Function::Kind::names ? "Namespace" : "function";
        case Kind::list: break;
    }
    switch (list().form) {
        case List::Form::list: return "list";
        case List::Form::tuple: return "tuple";
        case List::Form::range: return "range";
        case List::Form::view: return "dict view";
        case List::Form::lazy: break;
    }
    return "generator";
}

int Value::depth() const {
    if (is(Kind::function)) return function().kind == Function::Kind::method ? function().self.depth() + 1 : 0;
    return is(Kind::list) ? list().depth : is(Kind::dict) ? dict().depth : 0;
}

std::size_t Value::weight() const {
    if (is(Kind::text)) return 1 + text().size() / 64;
    return is(Kind::list) ? list().weight : is(Kind::dict) ? dict().weight : 1;
}

const Value* Dict::find(const Value& key) const {
    for (const auto& [name, value] : entries) {
        if (equal(name, key)) return &value;
    }
    return nullptr;
}

const Value* Dict::find(std::string_view key) const {
    for (const auto& [name, value] : entries) {
        if (name.is(Kind::text) && name.text().bytes() == key) return &value;
    }
    return nullptr;
}

void Dict::set(Value key, Value value) {
    for (auto& [name, old] : entries) {
        if (equal(name, key)) {
            old = std::move(value);
            return;
        }
    }
    entries.emplace_back(std::move(key), std::move(value));
}

Value make_list(std::vector<Value> items, List::Form form) {
    List list{.form = form};
    for (const Value& item : items) add(list.depth, list.weight, item);
    list.items = std::move(items);
    return Value(std::make_shared<List>(std::move(list)));
}

Value make_dict(Dict dict) {
    for (const auto& [key, value] : dict.entries) {
        add(dict.depth, dict.weight, key);
        add(dict.depth, dict.weight, value);
    }
    return Value(std::make_shared<const Dict>(std::move(dict)));
}

bool equal(const Value& a, const Value& b) {
    if (a.is_number() && b.is_number()) return wide(a) == wide(b);
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
        case Kind::undefined:
        case Kind::null: return true;
        case Kind::text: return a.text().bytes() == b.text().bytes();
        case Kind::list:
            if (&a.list() == &b.list()) return true;
            return a.list().form == b.list().form && a.list().indexed() && equal_items(a.list().items, b.list().items);
        case Kind::dict:
            if (&a.dict() == &b.dict()) return true;
            if (a.dict().entries.size() != b.dict().entries.size()) return false;
            return std::all_of(a.dict().entries.begin(), a.dict().entries.end(), [&](const auto& entry) {
                const Value* other = b.dict().find(entry.first);
                return other != nullptr && equal(entry.second, *other);
            });
        case Kind::function: return &a.function() == &b.function();
        default: return false;
    }
}

std::size_t comparison_cost(const Value& a, const Value& b) {
    if (a.kind() != b.kind()) return 0;
    if (a.is(Kind::dict)) return &a.dict() == &b.dict() ? 0 : a.weight() * b.weight() / 8;
    std::size_t cost = std::min(a.weight(), b.weight()) / 8;
    if (!a.is(Kind::list) || a.depth() <= 1 || b.depth() <= 1) return cost;
    const auto& left = a.list().items;
    const auto& right = b.list().items;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) cost += comparison_cost(left[i], right[i]);
    return cost;
}

bool less(const Value& a, const Value& b) {
    if (a.is(Kind::undefined)) throw Error(a.why());
    if (b.is(Kind::undefined)) throw Error(b.why());
    if (a.is_number() && b.is_number()) return wide(a) < wide(b);
    if (a.is(Kind::text) && b.is(Kind::text)) return a.text().bytes() < b.text().bytes();
    const bool lists = a.is(Kind::list) && b.is(Kind::list) && a.list().form == b.list().form && a.list().indexed();
    require(lists && a.list().form != List::Form::range, "'<' and '>' have no meaning between ", a.type(), " and ",
            b.type());
    const auto& left = a.list().items;
    const auto& right = b.list().items;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
        if (!equal(left[i], right[i])) return less(left[i], right[i]);
    }
    return left.size() < right.size();
}

}  // namespace coda::jinja
