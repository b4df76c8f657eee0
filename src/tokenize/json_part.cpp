#include "src/tokenize/json_part.h"

namespace coda {
namespace {

using nlohmann::json;

const json kNull;

}  // namespace

const json& JsonPart::object() const {
    require_that(value.is_object(), "an object is expected");
    return value;
}

const json& JsonPart::array() const {
    require_that(value.is_array(), "a list is expected");
    return value;
}

JsonPart JsonPart::operator[](const char* key) const {
    const auto found = object().find(key);
    return {found == value.end() ? kNull : *found, text(where, where.ends_with(":") ? " " : ".", key)};
}

std::string JsonPart::string() const {
    require_that(value.is_string(), "a string is expected");
    return value.get<std::string>();
}

std::string JsonPart::filled_string() const {
    const std::string result = string();
    require_that(!result.empty(), "a string that is not empty is expected");
    return result;
}

bool JsonPart::flag(bool fallback) const {
    if (value.is_null()) return fallback;
    require_that(value.is_boolean(), "true or false is expected");
    return value.get<bool>();
}

std::int64_t JsonPart::count() const {
    require_that(value.is_number_unsigned() && value.get<std::uint64_t>() < std::uint64_t{1} << 31,
                 "a count from 0 on is expected");
    return value.get<std::int64_t>();
}

std::uint32_t JsonPart::id() const {
    require_that(value.is_number_unsigned() && value.get<std::uint64_t>() < kMaxIds, "a token id from 0 to ",
                 kMaxIds - 1, " is expected");
    return value.get<std::uint32_t>();
}

void JsonPart::unsupported(const std::string& what, const std::string& why) const {
    throw Error(coda::text(where, ": ", what, " is not supported: ", why));
}

}  // namespace coda
