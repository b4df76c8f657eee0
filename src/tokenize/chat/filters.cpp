#include "src/tokenize/chat/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "src/core/utf8.h"
#include "src/tokenize/chat/arguments.h"
#include "src/tokenize/chat/filter_call.h"
#include "src/tokenize/chat/list_filters.h"
#include "src/tokenize/chat/operators.h"
#include "src/tokenize/chat/text_methods.h"
#include "src/tokenize/chat/value_text.h"

namespace coda::jinja {
namespace {

using Kind = Value::Kind;

Value trim(const FilterCall& call) {
    const Bound given = call.bound({"chars"});
    std::optional<std::string_view> characters;
    if (!given.has_none(0)) characters = given.text(0).bytes();
    return Value(stripped(call.text(), Sides::both, characters));
}

template <Case form>
Value change_case(const FilterCall& call) {
    call.bound({});
    return Value(with_case(call.text(), form));
}

/// Jinja's own: a word begins after white space, a hyphen or an opening bracket.
Value title(const FilterCall& call) {
    call.bound({});
    const OriginText text = call.text();
    OriginText result;
    const std::string_view bytes = text.bytes();
    for (std::size_t at = 0; at < bytes.size();) {
        const auto between = [&](std::size_t byte) {
            return std::string_view("-({[<").find(bytes[byte]) != std::string_view::npos ||
                   leading_space(bytes.substr(byte, 3)) > 0;
        };
        std::size_t end = at;
        while (end < bytes.size() && between(end) == between(at)) {
            end += std::max<std::size_t>(decode_utf8(bytes.substr(end)).length, 1);
        }
        // The first letter in upper case, not in title case.
        const std::size_t rest =
            between(at) ? end : at + std::max<std::size_t>(decode_utf8(bytes.substr(at)).length, 1);
        result.append(with_case(text.part(at, rest), Case::upper));
        result.append(with_case(text.part(rest, end), Case::lower));
        at = end;
    }
    return Value(std::move(result));
}

Value to_text(const FilterCall& call) {
    call.bound({});
    return Value(call.text());
}

Value count(const FilterCall& call) {
    call.bound({});
    return Value(length(call.value, call.budget));
}

Value or_default(const FilterCall& call) {
    const Bound given = call.bound({"default_value", "boolean"});
    const bool absent = call.value.is(Kind::undefined) || (given.truth(1) && !call.value.truth());
    return !absent ? call.value : given.has(0) ? given[0] : Value(OriginText());
}

Value replace(const FilterCall& call) {
    const Bound given = call.bound({"old", "new", "count"});
    const std::int64_t most = given.has_none(2) ? -1 : given.whole(2, -1);
    return Value(
        replaced(call.text(), str(given[0], call.budget).bytes(), str(given[1], call.budget), most, call.budget));
}

Value tojson(const FilterCall& call) {
    const Bound given = call.bound({"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonOptions options{.sort_keys = given.truth(3), .ascii = given.truth(0)};
    if (!given.has_none(1)) {
        const std::int64_t indent = given.whole(1, 0);
        require(indent <= 100, call.what, ": an indent of more than 100");
        options.indent = static_cast<int>(std::max<std::int64_t>(indent, 0));
        options.item = ",";
    }
    if (!given.has_none(2)) {
        const Value& separators = given[2];
        const bool two = separators.is(Kind::list) && separators.list().items.size() == 2;
        require(two && separators.list().items[0].is(Kind::text) && separators.list().items[1].is(Kind::text),
                call.what, ": separators are two texts");
        options.item = separators.list().items[0].text().bytes();
        options.key = separators.list().items[1].text().bytes();
    }
    return Value(json_text(call.value, options, call.budget));
}

/// int(): the default where Python's int() and int(float()) both fail.
Value to_int(const FilterCall& call) {
    const Bound given = call.bound({"default", "base"});
    Value without(std::int64_t{0});
    if (given.has(0)) without = given[0];
    require(given.whole(1, 10) == 10, call.what, ": another base than 10 is not supported");
    if (call.value.is(Kind::undefined)) throw Error(call.value.why());
    if (call.value.is_whole()) return Value(call.value.whole());
    double number = 0;
    if (call.value.is(Kind::text)) {
        const OriginText stripped_text = stripped(call.value.text(), Sides::both);
        std::string_view digits = stripped_text.bytes();
        if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
        const char* const end = digits.data() + digits.size();
        std::int64_t whole = 0;
        const auto read = std::from_chars(digits.data(), end, whole);
        if (read.ec == std::errc{} && read.ptr == end) return Value(whole);
        require(read.ec != std::errc::result_out_of_range, call.what, ": an integer beyond 64 bits");
        const auto real = std::from_chars(digits.data(), end, number);
        if (real.ec != std::errc{} || real.ptr != end) return without;
    } else if (call.value.is(Kind::real)) {
        number = call.value.real();
    } else {
        return without;
    }
    if (!std::isfinite(number)) return without;
    require(std::abs(number) < 9e18, call.what, ": an integer beyond 64 bits");
    return Value(static_cast<std::int64_t>(number));
}

using Filter = Value (*)(const FilterCall&);

const std::unordered_map<std::string_view, Filter>& filters() {
    static const std::unordered_map<std::string_view, Filter> known{
        {"trim", trim},
        {"upper", change_case<Case::upper>},
        {"lower", change_case<Case::lower>},
        {"capitalize", change_case<Case::capitalize>},
        {"title", title},
        {"string", to_text},
        {"safe", to_text},  // nothing is escaped here
        {"length", count},
        {"count", count},
        {"default", or_default},
        {"d", or_default},
        {"replace", replace},
        {"tojson", tojson},
        {"int", to_int},
    };
    return known;
}

}  // namespace

Value filtered(const std::string& name, const Value& value, const Arguments& given, Budget& budget) {
    const std::string what = "the filter " + name;
    const auto found = filters().find(name);
    if (found != filters().end()) return found->second({what, value, given, budget});
    if (std::optional<Value> result = list_filtered(name, value, given, budget)) return std::move(*result);
    throw Error(text(what, " is not supported"));
}

}  // namespace coda::jinja
