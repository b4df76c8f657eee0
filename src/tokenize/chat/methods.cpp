#include "src/tokenize/chat/methods.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/tokenize/chat/arguments.h"
#include "src/tokenize/chat/operators.h"
#include "src/tokenize/chat/text_methods.h"

namespace coda::jinja {
namespace {

using Kind = Value::Kind;

constexpr std::string_view kOfText[] = {
    "capitalize",   "casefold",   "center",    "count",       "encode",    "endswith",     "expandtabs",   "find",
    "format",       "format_map", "index",     "isalnum",     "isalpha",   "isascii",      "isdecimal",    "isdigit",
    "isidentifier", "islower",    "isnumeric", "isprintable", "isspace",   "istitle",      "isupper",      "join",
    "ljust",        "lower",      "lstrip",    "maketrans",   "partition", "removeprefix", "removesuffix", "replace",
    "rfind",        "rindex",     "rjust",     "rpartition",  "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith",   "strip",      "swapcase",  "title",       "translate", "upper",        "zfill"};
constexpr std::string_view kOfDict[] = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                        "pop",   "popitem", "setdefault", "update", "values"};
constexpr std::string_view kOfList[] = {"append", "clear", "copy",   "count",   "extend", "index",
                                        "insert", "pop",   "remove", "reverse", "sort"};

/// startswith() and endswith() with a text or a tuple of texts.
bool at_side(const Bound& given, const std::string& text, bool begin) {
    const auto fits = [&](const Value& part) {
        require(part.is(Kind::text), "startswith and endswith take texts, found ", part.type());
        return begin ? text.starts_with(part.text().bytes()) : text.ends_with(part.text().bytes());
    };
    const Value& wanted = given[0];
    if (!wanted.is(Kind::list) || wanted.list().form != List::Form::tuple) return fits(wanted);
    return std::any_of(wanted.list().items.begin(), wanted.list().items.end(), fits);
}

Value split_text(const std::string& what, const OriginText& self, const Arguments& arguments, bool from_right,
                 Budget& budget) {
    const Bound given(what, arguments, {"sep", "maxsplit"});
    std::optional<std::string_view> separator;
    if (!given.has_none(0)) separator = given.text(0).bytes();
    std::vector<Value> parts;
    for (OriginText& part : split(self, separator, given.whole(1, -1), from_right, budget))
        parts.emplace_back(std::move(part));
    return make_list(std::move(parts));
}

Value text_method(const OriginText& self, const std::string& name, const Arguments& arguments, Budget& budget) {
    const std::string what = "the method " + name;
    budget.spend_text(self);
    if (name == "split" || name == "rsplit") return split_text(what, self, arguments, name == "rsplit", budget);
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
        const Bound given(what, arguments, {"chars"});
        std::optional<std::string_view> characters;
        if (!given.has_none(0)) characters = given.text(0).bytes();
        return Value(stripped(self,
                              name == "strip"    ? Sides::both
                              : name == "lstrip" ? Sides::left
                                                 : Sides::right,
                              characters));
    }
    if (name == "startswith" || name == "endswith") {
        return Value(at_side(Bound(what, arguments, {"prefix"}), self.bytes(), name == "startswith"));
    }
    if (name == "replace") {
        const Bound given(what, arguments, {"old", "new", "count"});
        return Value(replaced(self, given.text(0).bytes(), given.text(1), given.whole(2, -1), budget));
    }
    constexpr std::pair<std::string_view, Case> kCases[] = {
        {"upper", Case::upper}, {"lower", Case::lower}, {"capitalize", Case::capitalize}, {"title", Case::title}};
    for (const auto& [method, form] : kCases) {
        if (name != method) continue;
        const Bound none(what, arguments, {});
        return Value(with_case(self, form));
    }
    throw Error(text(what, " of a text is not supported"));
}

Value dict_method(const Dict& self, const std::string& name, const Arguments& arguments, Budget& budget) {
    const std::string what = "the method " + name;
    budget.spend(1 + self.entries.size() / 8);
    if (name == "get") {
        const Bound given(what, arguments, {"key", "default"});
        budget.spend(self.entries.size() * given[0].weight() / 8);
        const Value* found = self.find(given[0]);
        return found != nullptr ? *found : given.has(1) ? given[1] : Value();
    }
    require(name == "items" || name == "keys" || name == "values", what, " of a dict is not supported");
    const Bound none(what, arguments, {});
    std::vector<Value> items;
    budget.spend(self.entries.size());
    for (const auto& [key, value] : self.entries) {
        items.push_back(name == "keys" ? key : name == "values" ? value : make_list({key, value}, List::Form::tuple));
    }
    return make_list(std::move(items), List::Form::view);
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
    const auto among = [&](const auto& names) {
        return std::find(std::begin(names), std::end(names), name) != std::end(names);
    };
    switch (object.kind()) {
        case Kind::text: return among(kOfText);
        case Kind::dict: return among(kOfDict);
        case Kind::list: return object.list().form == List::Form::list && among(kOfList);
        default: return false;
    }
}

Value call_method(const Value& self, const std::string& name, const Arguments& given, Budget& budget) {
    if (self.is(Kind::text)) return text_method(self.text(), name, given, budget);
    if (self.is(Kind::dict)) return dict_method(self.dict(), name, given, budget);
    throw Error(text("the method ", name, " of a ", self.type(), " is not supported"));
}

}  // namespace coda::jinja
