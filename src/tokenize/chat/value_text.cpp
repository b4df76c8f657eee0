#include "src/tokenize/chat/value_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "src/core/utf8.h"

namespace coda::jinja {
namespace {

using Kind = Value::Kind;

std::string hex(const char* form, char32_t value) {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, form, static_cast<unsigned>(value));
    return buffer;
}

/// Whether str.isprintable() does not hold, for the characters of general use.
bool is_hidden(char32_t c) {
    return c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c == 0x1680 || (c >= 0x2000 && c <= 0x200F) ||
           (c >= 0x2028 && c <= 0x202F) || (c >= 0x205F && c <= 0x206F) || c == 0x3000 ||
           (c >= 0xE000 && c <= 0xF8FF) || c == 0xFEFF || c >= 0xE0000;
}

class Writer {
  public:
    Writer(OriginText& out, Budget& budget) : out_(out), budget_(budget) {}

    void put(std::string_view text) { out_.append(text, {}); }
    void put(std::string_view text, Origin origin) { out_.append(text, origin); }
    /// After each value: what was written is counted.
    void step() {
        budget_.check_text(out_.size());
        budget_.spend(1 + (out_.size() - counted_) / 64);
        counted_ = out_.size();
    }

  private:
    OriginText& out_;
    Budget& budget_;
    std::size_t counted_ = 0;
};

class Printer {
  public:
    Printer(OriginText& out, Budget& budget) : writer_(out, budget) {}

    void print(const Value& value) {
        writer_.step();
        switch (value.kind()) {
            case Kind::undefined: return writer_.put("Undefined");
            case Kind::null: return writer_.put("None");
            case Kind::boolean: return writer_.put(value.boolean() ? "True" : "False");
            case Kind::integer: return writer_.put(std::to_string(value.whole()));
            case Kind::real: return writer_.put(float_text(value.real()));
            case Kind::text: return quoted(value.text());
            case Kind::list: return items(value.list());
            case Kind::dict: return entries(value.dict());
            case Kind::function: throw Error(text("a ", value.type(), " as text is not supported"));
        }
    }

  private:
    void items(const List& list) {
        const bool tuple = list.form == List::Form::tuple;
        require(tuple || list.form == List::Form::list, "a ", Value(std::make_shared<List>(List{list.form})).type(),
                " as text is not supported");
        writer_.put(tuple ? "(" : "[");
        for (std::size_t i = 0; i < list.items.size(); ++i) {
            if (i > 0) writer_.put(", ");
            print(list.items[i]);
        }
        writer_.put(!tuple ? "]" : list.items.size() == 1 ? ",)" : ")");
    }

    void entries(const Dict& dict) {
        writer_.put("{");
        for (std::size_t i = 0; i < dict.entries.size(); ++i) {
            if (i > 0) writer_.put(", ");
            print(dict.entries[i].first);
            writer_.put(": ");
            print(dict.entries[i].second);
        }
        writer_.put("}");
    }

    void quoted(const OriginText& text) {
        const std::string& bytes = text.bytes();
        const bool twofold = bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos;
        const char quote = twofold ? '"' : '\'';
        writer_.put(std::string_view(&quote, 1));
        for (std::size_t at = 0; at < bytes.size();) {
            const CodePoint next = decode_utf8(std::string_view(bytes).substr(at));
            const std::size_t length = std::max<std::size_t>(next.length, 1);
            const Origin origin = text.origin_of(at);
            const char32_t c = next.value;
            if (c == U'\n' || c == U'\r' || c == U'\t') {
                writer_.put(c == U'\n' ? "\\n" : c == U'\r' ? "\\r" : "\\t", origin);
            } else if (c == static_cast<char32_t>(quote) || c == U'\\') {
                writer_.put(std::string{'\\', static_cast<char>(c)}, origin);
            } else if (is_hidden(c)) {
                writer_.put(hex(c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c), origin);
            } else {
                writer_.put(std::string_view(bytes).substr(at, length), origin);
            }
            at += length;
        }
        writer_.put(std::string_view(&quote, 1));
        writer_.step();
    }

    Writer writer_;
};

class JsonPrinter {
  public:
    JsonPrinter(OriginText& out, const JsonOptions& options, Budget& budget)
        : writer_(out, budget), options_(options), budget_(budget) {}

    void print(const Value& value, int level) {
        writer_.step();
        switch (value.kind()) {
            case Kind::null:
            case Kind::boolean:
            case Kind::integer:
            case Kind::real: return writer_.put(scalar(value));
            case Kind::text: return quoted(value.text());
            case Kind::list:
                if (value.list().form == List::Form::list || value.list().form == List::Form::tuple) {
                    return items(value.list(), level);
                }
                break;
            case Kind::dict: return entries(value.dict(), level);
            default: break;
        }
        throw Error(text("tojson: a value of type ", value.type(), " has no JSON"));
    }

  private:
    static std::string scalar(const Value& value) {
        if (value.is(Kind::null)) return "null";
        if (value.is(Kind::boolean)) return value.boolean() ? "true" : "false";
        if (value.is(Kind::integer)) return std::to_string(value.whole());
        const double number = value.real();
        if (std::isnan(number)) return "NaN";
        if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
        return float_text(number);
    }

    void line(int level) {
        if (options_.indent < 0) return;
        writer_.put("\n" + std::string(static_cast<std::size_t>(options_.indent * level), ' '));
        writer_.step();
    }

    void items(const List& list, int level) {
        if (list.items.empty()) return writer_.put("[]");
        writer_.put("[");
        for (std::size_t i = 0; i < list.items.size(); ++i) {
            if (i > 0) writer_.put(options_.item);
            line(level + 1);
            print(list.items[i], level + 1);
        }
        line(level);
        writer_.put("]");
    }

    void entries(const Dict& dict, int level) {
        if (dict.entries.empty()) return writer_.put("{}");
        std::vector<std::pair<Value, Value>> entries = dict.entries;
        budget_.spend(entries.size());
        if (options_.sort_keys) {
            std::stable_sort(entries.begin(), entries.end(),
                             [](const auto& a, const auto& b) { return less(a.first, b.first); });
        }
        writer_.put("{");
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (i > 0) writer_.put(options_.item);
            line(level + 1);
            const Value& key = entries[i].first;
            require(key.is(Kind::text) || key.is(Kind::null) || key.is_number(), "tojson: a key of type ", key.type());
            if (key.is(Kind::text)) {
                quoted(key.text());
            } else {
                writer_.put("\"" + scalar(key) + "\"");
            }
            writer_.put(options_.key);
            print(entries[i].second, level + 1);
        }
        line(level);
        writer_.put("}");
    }

    void quoted(const OriginText& text) {
        writer_.put("\"");
        const std::string_view bytes = text.bytes();
        for (std::size_t at = 0; at < bytes.size();) {
            const CodePoint next = decode_utf8(bytes.substr(at));
            const std::size_t length = std::max<std::size_t>(next.length, 1);
            writer_.put(escaped(next.value, bytes.substr(at, length)), text.origin_of(at));
            at += length;
        }
        writer_.put("\"");
        writer_.step();
    }

    std::string escaped(char32_t c, std::string_view bytes) const {
        switch (c) {
            case U'"': return "\\\"";
            case U'\\': return "\\\\";
            case U'\n': return "\\n";
            case U'\r': return "\\r";
            case U'\t': return "\\t";
            case U'\b': return "\\b";
            case U'\f': return "\\f";
            default: break;
        }
        if (c < 0x20 || (options_.ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) return hex("\\u%04x", c);
        if (!options_.ascii || c < 0x80) return std::string(bytes);
        return hex("\\u%04x", 0xD800 + ((c - 0x10000) >> 10)) + hex("\\u%04x", 0xDC00 + ((c - 0x10000) & 0x3FF));
    }

    Writer writer_;
    const JsonOptions& options_;
    Budget& budget_;
};

}  // namespace

std::string float_text(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    char buffer[40];
    // The shortest digits that read as this number; Python writes an exponent below 1e-4 and from 1e16 on.
    const auto scientific = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
    const std::string digits(buffer, scientific.ptr);
    const int exponent = std::atoi(digits.c_str() + digits.find('e') + 1);
    if (value != 0 && (exponent < -4 || exponent >= 16)) return digits;
    char fixed[64];
    const auto end = std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed).ptr;
    std::string result(fixed, end);
    return result.find('.') == std::string::npos ? result + ".0" : result;
}

OriginText str(const Value& value, Budget& budget) {
    if (value.is(Kind::text)) return value.text();
    OriginText result;
    if (!value.is(Kind::undefined)) Printer(result, budget).print(value);
    return result;
}

OriginText json_text(const Value& value, const JsonOptions& options, Budget& budget) {
    OriginText result;
    JsonPrinter(result, options, budget).print(value, 0);
    return result;
}

}  // namespace coda::jinja
