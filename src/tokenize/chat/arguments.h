// The arguments of a filter, method or function, by the names of its parameters.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/error.h"
#include "src/tokenize/chat/function.h"

namespace coda::jinja {

class Bound {
  public:
    /// Throws Error for an argument too many or of an unknown name. `what` is named in messages, as "the filter join".
    Bound(std::string what, const Arguments& given, std::initializer_list<std::string_view> parameters)
        : what_(std::move(what)) {
        require(given.positional.size() <= parameters.size(), what_, " takes at most ", parameters.size(),
                " arguments here, found ", given.positional.size());
        for (const std::string_view name : parameters) values_.push_back({std::string(name)});
        for (std::size_t i = 0; i < given.positional.size(); ++i) values_[i].value = &given.positional[i];
        for (const auto& [name, value] : given.named) {
            bool known = false;
            for (Slot& slot : values_) {
                if (slot.name != name) continue;
                require(slot.value == nullptr, what_, " has two values of ", name);
                slot.value = &value;
                known = true;
            }
            require(known, what_, " has no parameter ", name, " here");
        }
    }

    bool has(std::size_t index) const { return values_[index].value != nullptr; }
    bool has_none(std::size_t index) const { return !has(index) || values_[index].value->is(Value::Kind::null); }
    const Value& operator[](std::size_t index) const {
        require(has(index), what_, " lacks ", values_[index].name);
        return *values_[index].value;
    }
    const OriginText& text(std::size_t index) const {
        const Value& value = (*this)[index];
        require(value.is(Value::Kind::text), what_, ": ", values_[index].name, " is no text, but ", value.type());
        return value.text();
    }
    std::int64_t whole(std::size_t index, std::int64_t without) const {
        if (!has(index)) return without;
        const Value& value = (*this)[index];
        require(value.is_whole(), what_, ": ", values_[index].name, " is no integer, but ", value.type());
        return value.whole();
    }
    bool truth(std::size_t index) const { return has(index) && (*this)[index].truth(); }

  private:
    struct Slot {
        std::string name;
        const Value* value = nullptr;
    };
    std::string what_;
    std::vector<Slot> values_;
};

}  // namespace coda::jinja
