#include "src/tokenize/chat/operators.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/core/utf8.h"
#include "src/tokenize/chat/text_methods.h"

namespace coda::jinja {
namespace {

using Kind = Value::Kind;

[[noreturn]] void refuse(const std::string& sign, const Value& a, const Value& b) {
    throw Error(text("\"", sign, "\" has no meaning between ", a.type(), " and ", b.type()));
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
    const std::int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double floor_remainder(double a, double b) {
    const double remainder = std::fmod(a, b);
    if (remainder == 0) return std::copysign(0.0, b);
    return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

Value of_integers(const std::string& sign, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    bool overflow = false;
    if (sign == "+") overflow = __builtin_add_overflow(a, b, &result);
    if (sign == "-") overflow = __builtin_sub_overflow(a, b, &result);
    if (sign == "*") overflow = __builtin_mul_overflow(a, b, &result);
    if (sign == "/" || sign == "//" || sign == "%") require(b != 0, "division by zero");
    if (sign == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1 && (sign == "//" || sign == "%")) {  // -2^63 / -1 is beyond 64 bits
        overflow = sign == "//" && __builtin_sub_overflow(std::int64_t{0}, a, &result);
    } else if (sign == "//") {
        result = floor_quotient(a, b);
    } else if (sign == "%") {
        result = a - floor_quotient(a, b) * b;
    }
    require(!overflow, "an integer beyond 64 bits");
    return Value(result);
}

Value of_reals(const std::string& sign, double a, double b) {
    if (sign == "+") return Value(a + b);
    if (sign == "-") return Value(a - b);
    if (sign == "*") return Value(a * b);
    require(b != 0, "division by zero");
    if (sign == "/") return Value(a / b);
    const double remainder = floor_remainder(a, b);
    if (sign == "%") return Value(remainder);
    const double quotient = (a - remainder) / b;
    return Value(quotient == 0 ? std::copysign(0.0, a / b) : std::floor(quotient + 0.5));
}

Value joined(const Value& a, const Value& b, Budget& budget) {
    if (a.is(Kind::text)) {
        budget.spend_text(a.text().size() + b.text().size());
        OriginText result = a.text();
        result.append(b.text());
        budget.spend(result.runs().size() / 4);
        return Value(std::move(result));
    }
    std::vector<Value> items = a.list().items;
    budget.spend(items.size() + b.list().items.size());
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return make_list(std::move(items), a.list().form);
}

bool is_sequence(const Value& value) {
    return value.is(Kind::text) ||
           (value.is(Kind::list) && (value.list().form == List::Form::list || value.list().form == List::Form::tuple));
}

Value repeated(const Value& value, std::int64_t times, Budget& budget) {
    Value result = value.is(Kind::text) ? Value(OriginText()) : make_list({}, value.list().form);
    // Doubled as long as it fits, so that a repetition takes few steps; the budget ends those that are too many.
    Value power = value;
    for (std::int64_t rest = std::max<std::int64_t>(times, 0); rest > 0; rest /= 2) {
        if (rest % 2 == 1) result = joined(result, power, budget);
        if (rest > 1) power = joined(power, power, budget);
    }
    return result;
}

bool contains(const Value& container, const Value& wanted, Budget& budget) {
    budget.spend(container.weight() / 8);
    switch (container.kind()) {
        case Kind::undefined: return false;
        case Kind::text:
            require(wanted.is(Kind::text), "\"in\" a text asks for a text, not ", wanted.type());
            return find_part(container.text().bytes(), wanted.text().bytes(), 0) != std::string::npos;
        case Kind::dict:
            budget.spend(container.dict().entries.size() * wanted.weight() / 8);
            return container.dict().find(wanted) != nullptr;
        case Kind::list:
            for (const Value& each : items_of(container, budget)) {
                budget.spend(comparison_cost(each, wanted));
                if (equal(each, wanted)) return true;
            }
            return false;
        default: refuse("in", wanted, container);
    }
}

/// `index` from the end if it is negative; -1 outside.
std::int64_t place(std::int64_t index, std::int64_t size) {
    if (index < 0) index += size;
    return index < 0 || index >= size ? -1 : index;
}

}  // namespace

void require_defined(const Value& value) {
    if (value.is(Kind::undefined)) throw Error(value.why());
}

Value arithmetic(const std::string& sign, const Value& a, const Value& b, Budget& budget) {
    require_defined(a);
    require_defined(b);
    if (a.is_whole() && b.is_whole()) return of_integers(sign, a.whole(), b.whole());
    if (a.is_number() && b.is_number()) return of_reals(sign, a.real(), b.real());
    if (sign == "+" && is_sequence(a) && a.kind() == b.kind() && (a.is(Kind::text) || a.list().form == b.list().form)) {
        return joined(a, b, budget);
    }
    if (sign == "*" && is_sequence(a) && b.is_whole()) return repeated(a, b.whole(), budget);
    if (sign == "*" && a.is_whole() && is_sequence(b)) return repeated(b, a.whole(), budget);
    require(sign != "%" || !a.is(Kind::text), "formatting of a text by \"%\" is not supported");
    refuse(sign, a, b);
}

Value negative(const Value& value) {
    require_defined(value);
    require(value.is_number(), "\"-\" has no meaning for ", value.type());
    return value.is_whole() ? of_integers("-", 0, value.whole()) : Value(-value.real());
}

bool compares(const std::string& sign, const Value& a, const Value& b, Budget& budget) {
    if (sign == "in") return contains(b, a, budget);
    if (sign == "not in") return !contains(b, a, budget);
    budget.spend(comparison_cost(a, b));
    if (sign == "==") return equal(a, b);
    if (sign == "!=") return !equal(a, b);
    if (sign == "<") return less(a, b);
    if (sign == ">") return less(b, a);
    // Not the opposite of ">": a comparison with NaN is false.
    return (sign == "<=" ? less(a, b) : less(b, a)) || equal(a, b);
}

Value item(const Value& object, const Value& key, Budget& budget) {
    require_defined(object);
    if (object.is(Kind::dict)) {
        budget.spend(object.dict().entries.size() * key.weight() / 8);
        if (const Value* found = object.dict().find(key)) return *found;
    }
    if (key.is(Kind::text)) return attribute(object, key.text().bytes(), budget);
    if (key.is_whole() && object.is(Kind::list) && object.list().indexed()) {
        const auto& items = object.list().items;
        const std::int64_t at = place(key.whole(), static_cast<std::int64_t>(items.size()));
        if (at >= 0) return items[static_cast<std::size_t>(at)];
    }
    if (key.is_whole() && object.is(Kind::text)) {
        const std::string& bytes = object.text().bytes();
        budget.spend(bytes.size() / 64);
        const std::int64_t at = place(key.whole(), length_of(bytes));
        if (at >= 0) return Value(object.text().part(byte_of(bytes, at), byte_of(bytes, at + 1)));
    }
    return Value::undefined(text("a value of type ", object.type(), " has no such element"));
}

Value slice(const Value& object, const Value& start, const Value& stop, const Value& step, Budget& budget) {
    require_defined(object);
    const bool is_text = object.is(Kind::text);
    const bool known = is_text || (object.is(Kind::list) && object.list().indexed());
    for (const Value* each : {&start, &stop, &step}) {
        require_defined(*each);
        require(each->is(Kind::null) || each->is_whole(), "a slice has an index of type ", each->type());
    }
    if (!known) return Value::undefined(text("a value of type ", object.type(), " has no slices"));
    const std::int64_t stride = step.is(Kind::null) ? 1 : step.whole();
    require(stride != 0, "a slice has the step 0");
    const std::int64_t size = length(object, budget), low = stride > 0 ? 0 : -1;
    const std::int64_t high = stride > 0 ? size : size - 1;
    const auto bound = [&](const Value& given, std::int64_t without) {
        if (given.is(Kind::null)) return without;
        const std::int64_t index = given.whole() < 0 ? given.whole() + size : given.whole();
        return std::clamp(index, low, high);
    };
    std::int64_t at = bound(start, stride > 0 ? low : high);
    const std::int64_t end = bound(stop, stride > 0 ? high : low);
    if (is_text && stride == 1) {
        const std::string& bytes = object.text().bytes();
        budget.spend_text(bytes.size());
        return Value(object.text().part(byte_of(bytes, at), byte_of(bytes, std::max(at, end))));
    }
    const std::vector<Value> all = items_of(object, budget);
    std::vector<Value> items;
    OriginText characters;
    while (stride > 0 ? at < end : at > end) {
        const Value& each = all[static_cast<std::size_t>(at)];
        if (is_text) {
            characters.append(each.text());
        } else {
            items.push_back(each);
        }
        if (__builtin_add_overflow(at, stride, &at)) break;
    }
    return is_text ? Value(std::move(characters)) : make_list(std::move(items), object.list().form);
}

std::vector<Value> items_of(const Value& value, Budget& budget) {
    std::vector<Value> items;
    switch (value.kind()) {
        case Kind::undefined: return items;
        case Kind::list:
            if (value.list().form == List::Form::lazy) return std::exchange(value.list().items, {});
            budget.spend(value.list().items.size());
            return value.list().items;
        case Kind::dict:
            budget.spend(value.dict().entries.size());
            for (const auto& entry : value.dict().entries) items.push_back(entry.first);
            return items;
        case Kind::text: {
            const std::string_view bytes = value.text().bytes();
            budget.spend(4 * bytes.size());
            for (std::size_t at = 0; at < bytes.size();) {
                const std::size_t length = std::max<std::size_t>(decode_utf8(bytes.substr(at)).length, 1);
                items.emplace_back(value.text().part(at, at + length));
                at += length;
            }
            return items;
        }
        default: throw Error(text("a value of type ", value.type(), " has no elements to go through"));
    }
}

std::int64_t length(const Value& value, Budget& budget) {
    switch (value.kind()) {
        case Kind::undefined: return 0;
        case Kind::text: budget.spend(value.text().size() / 64); return length_of(value.text().bytes());
        case Kind::dict: return static_cast<std::int64_t>(value.dict().entries.size());
        case Kind::list:
            if (value.list().form != List::Form::lazy) return static_cast<std::int64_t>(value.list().items.size());
            [[fallthrough]];
        default: throw Error(text("a value of type ", value.type(), " has no length"));
    }
}

}  // namespace coda::jinja
