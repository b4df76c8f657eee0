// The values of a template while it is rendered, with Python's equality, order and truth.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/tokenize/chat/origin_text.h"

namespace coda::jinja {

class Value;
struct List;
struct Dict;
struct Function;

struct Undefined {
    std::shared_ptr<const std::string> why;  // "'x' is undefined"
};
struct Null {};

class Value {
  public:
    /// The order of the alternatives below.
    enum class Kind : std::uint8_t { undefined, null, boolean, integer, real, text, list, dict, function };

    Value() : content_(Null{}) {}
    // Defined in value.cpp: there are many places that copy and destroy values.
    Value(const Value&);
    Value(Value&&) noexcept;
    Value& operator=(const Value&);
    Value& operator=(Value&&) noexcept;
    ~Value();
    explicit Value(bool value) : content_(value) {}
    explicit Value(std::int64_t value) : content_(value) {}
    explicit Value(double value) : content_(value) {}
    explicit Value(OriginText value) : content_(std::make_shared<const OriginText>(std::move(value))) {}
    explicit Value(std::shared_ptr<List> value) : content_(std::move(value)) {}
    explicit Value(std::shared_ptr<const Dict> value) : content_(std::move(value)) {}
    explicit Value(std::shared_ptr<const Function> value) : content_(std::move(value)) {}
    static Value undefined(std::string why);
    /// Text of the template's own.
    static Value of(std::string_view text) { return Value(OriginText(text)); }

    Kind kind() const { return static_cast<Kind>(content_.index()); }
    bool is(Kind kind) const { return this->kind() == kind; }
    bool is_number() const { return is(Kind::boolean) || is(Kind::integer) || is(Kind::real); }
    bool is_whole() const { return is(Kind::boolean) || is(Kind::integer); }

    bool boolean() const { return std::get<bool>(content_); }
    std::int64_t whole() const;  // of is_whole(): True is 1
    double real() const;         // of is_number()
    const OriginText& text() const { return *std::get<std::shared_ptr<const OriginText>>(content_); }
    List& list() const { return *std::get<std::shared_ptr<List>>(content_); }
    const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(content_); }
    const Function& function() const { return *std::get<std::shared_ptr<const Function>>(content_); }
    const std::string& why() const { return *std::get<Undefined>(content_).why; }

    bool truth() const;
    std::string type() const;    // Python's name: "str", "NoneType"
    int depth() const;           // of lists and dicts within each other
    std::size_t weight() const;  // how much there is to pass through, shared parts each time

  private:
    std::variant<Undefined, Null, bool, std::int64_t, double, std::shared_ptr<const OriginText>, std::shared_ptr<List>,
                 std::shared_ptr<const Dict>, std::shared_ptr<const Function>>
        content_;
};

struct List {
    enum class Form : std::uint8_t {
        list,
        tuple,
        range,
        view,  // keys(), values(), items(): has a length, but no elements by index
        lazy   // a generator: passed through once
    };
    Form form = Form::list;
    std::vector<Value> items{};
    int depth = 1;
    std::size_t weight = 1;
    bool indexed() const { return form == Form::list || form == Form::tuple || form == Form::range; }
};

struct Dict {
    std::vector<std::pair<Value, Value>> entries{};  // in the order of insertion
    int depth = 1;
    std::size_t weight = 1;
    const Value* find(const Value& key) const;
    const Value* find(std::string_view key) const;
    void set(Value key, Value value);  // in place of an equal key's
};

/// Beyond these a value is an error, so that what walks it recursively has a limit.
inline constexpr int kMostValueDepth = 100;
inline constexpr std::size_t kMostValueWeight = 10'000'000;

Value make_list(std::vector<Value> items, List::Form form = List::Form::list);
Value make_dict(Dict dict);  // computes depth and weight

bool equal(const Value& a, const Value& b);
/// About how many nodes a comparison costs: of dicts, which are searched key by key, the product of their weights.
std::size_t comparison_cost(const Value& a, const Value& b);
/// a < b. Throws Error for types that have no order.
bool less(const Value& a, const Value& b);

}  // namespace coda::jinja
