#include "src/config/hf_rope.h"

#include <iterator>
#include <nlohmann/json.hpp>

namespace coda {

namespace {

struct Rope {
    nlohmann::json theta;    // null: not given here
    nlohmann::json scaling;  // as in the model section
    bool operator==(const Rope&) const = default;
};

/// Yarn's object without nulls, and with the defaults of transformers for what this program wants: the context before
/// the scaling is the model's, and the factor is how much longer the model's is.
nlohmann::json yarn_of(nlohmann::json object, const nlohmann::json& context) {
    for (auto part = object.begin(); part != object.end();)
        part = part->is_null() ? object.erase(part) : std::next(part);
    const auto original = object.emplace("original_max_position_embeddings", context).first;
    if (!object.contains("factor") && original->is_number() && context.is_number() && *original > 0)
        object["factor"] = context.get<double>() / original->get<double>();
    return object;
}

/// Rotary parameters of an object "rope_scaling" (transformers 4: rope_theta stands next to it) or "rope_parameters"
/// (transformers 5: rope_theta within). Older files call rope_type "type".
Rope rope_of(const HfConfig& hf, const char* key, const nlohmann::json& context) {
    nlohmann::json object = hf.get(key);
    if (object.is_null()) return {};
    require(object.is_object(), hf.file(), ": ", key, ": expected an object or null, found ", found_text(object));
    Rope rope;
    if (object.contains("rope_theta")) rope.theta = object["rope_theta"];
    object.erase("rope_theta");
    require(object.value("partial_rotary_factor", nlohmann::json(1)) == 1, hf.file(), ": ", key,
            ".partial_rotary_factor: only 1 is supported");
    object.erase("partial_rotary_factor");
    if (!object.contains("rope_type")) object["rope_type"] = object.value("type", nlohmann::json("default"));
    object.erase("type");
    const nlohmann::json type = object["rope_type"];
    require(type == "default" || type == "llama3" || type == "linear" || type == "yarn", hf.file(), ": ", key,
            ".rope_type is ", found_text(type),
            "; only \"default\", \"linear\", \"llama3\" and \"yarn\" are supported");
    if (type == "linear") object = {{"rope_type", type}, {"factor", object.value("factor", nlohmann::json())}};
    if (type == "yarn") object = yarn_of(object, context);
    if (type != "default") rope.scaling = object;
    return rope;
}

}  // namespace

void put_rope(const HfConfig& hf, nlohmann::json& section) {
    constexpr double kHfRopeTheta = 10000;
    const nlohmann::json context = section["max_position_embeddings"];
    Rope rope = rope_of(hf, "rope_parameters", context);
    if (!hf.get("rope_scaling").is_null()) {
        const Rope scaling = rope_of(hf, "rope_scaling", context);
        require(hf.get("rope_parameters").is_null() || rope.scaling == scaling.scaling, hf.file(),
                ": rope_scaling and rope_parameters disagree; remove one of them");
        rope.scaling = scaling.scaling;
        if (rope.theta.is_null()) rope.theta = scaling.theta;
    }
    const nlohmann::json& beside = hf.get("rope_theta");
    require(rope.theta.is_null() || beside.is_null() || rope.theta == beside, hf.file(), ": rope_theta ",
            found_text(beside), " and the one in rope_parameters, ", found_text(rope.theta),
            ", disagree; remove one of them");
    if (rope.theta.is_null()) rope.theta = hf.or_default("rope_theta", kHfRopeTheta);
    section["rope_theta"] = rope.theta;
    section["rope_scaling"] = rope.scaling;
}

}  // namespace coda
