#include "src/config/quantization.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "src/config/codec.h"
#include "src/core/errors.h"

namespace coda {

namespace {

using nlohmann::json;

/// A part of quantization_config with its place, which errors name.
struct Part {
    const json& value;
    std::string where;

    /// An absent key counts as null.
    void must_be(const char* key, const std::vector<json>& allowed, const char* why) const {
        const json given = value.value(key, json());
        for (const json& each : allowed) {
            if (given == each) return;
        }
        throw Error(text(where, ".", key, " is ", found_text(given), ": ", why, kTakeFloats));
    }
    Part of(const char* key) const {
        require(value.contains(key) && value[key].is_object(), where, ".", key, ": expected an object, found ",
                found_text(value.value(key, json())));
        return {value[key], where + "." + key};
    }
};

constexpr const char* kBits = "the weights that this program reads have 4 bits";
static_assert(kInt4Group == 128, "the next message says so");
constexpr const char* kGroups = "the weights that this program reads have a scale per 128 columns";
constexpr const char* kSymmetric = "the weights that this program reads are symmetric, without zero points";
constexpr const char* kOrder = "this program does not reorder columns";

void check_compressed_tensors(const Part& config) {
    config.must_be("format", {"pack-quantized"}, "of compressed-tensors this program reads \"pack-quantized\"");
    config.must_be("kv_cache_scheme", {json()}, "this program's cache is bf16");
    if (config.value.contains("sparsity_config") && config.value["sparsity_config"].is_object())
        config.of("sparsity_config").must_be("format", {json(), "dense"}, "the weights must be dense");
    const Part groups = config.of("config_groups");
    require(!groups.value.empty(), groups.where, " is empty", kTakeFloats);
    for (const auto& [name, group] : groups.value.items()) {
        const Part part{group, groups.where + "." + name};
        require(group.is_object(), part.where, ": expected an object, found ", found_text(group));
        for (const char* key : {"input_activations", "output_activations"})
            part.must_be(key, {json()}, "this program quantizes no activations");
        const Part weights = part.of("weights");
        weights.must_be("type", {"int"}, "the weights that this program reads are integers");
        weights.must_be("num_bits", {4}, kBits);
        weights.must_be("symmetric", {true}, kSymmetric);
        weights.must_be("strategy", {"group"}, kGroups);
        weights.must_be("group_size", {kInt4Group}, kGroups);
        weights.must_be("actorder", {json(), "weight", "static"}, kOrder);  // these two store columns in their order
    }
}

void check_gptq(const Part& config) {
    config.must_be("bits", {4}, kBits);
    config.must_be("group_size", {kInt4Group}, kGroups);
    config.must_be("sym", {true}, kSymmetric);
    config.must_be("desc_act", {json(), false}, kOrder);
    config.must_be("checkpoint_format", {json(), "gptq", "gptq_v2"}, "this program reads GPTQ's own layout");
}

}  // namespace

void check_quantization(const json& quantization, const std::string& file) {
    if (quantization.is_null()) return;
    const Part config{quantization, text(file, ": quantization_config")};
    require(quantization.is_object(), config.where, ": expected an object or null, found ", found_text(quantization));
    const json method = quantization.value("quant_method", json());
    if (method == "compressed-tensors") return check_compressed_tensors(config);
    if (method == "gptq") return check_gptq(config);
    throw Error(text(config.where, ": the weights are quantized (",
                     method.is_string() ? method.get<std::string>() : "in a way that it does not name",
                     "); of quantized weights this program reads compressed-tensors' \"pack-quantized\" and GPTQ",
                     kTakeFloats));
}

json packed_quantization(const std::vector<std::string>& floats) {
    json ignore = json::array({"lm_head"});
    for (const std::string& module : floats) ignore.push_back(module);
    const json weights = {{"num_bits", 4},
                          {"type", "int"},
                          {"symmetric", true},
                          {"strategy", "group"},
                          {"group_size", kInt4Group},
                          {"dynamic", false},
                          {"actorder", nullptr},
                          {"observer", "minmax"}};
    return {{"quant_method", "compressed-tensors"},
            {"format", "pack-quantized"},
            {"quantization_status", "compressed"},
            {"ignore", std::move(ignore)},
            {"kv_cache_scheme", nullptr},
            {"config_groups",
             {{"group_0",
               {{"targets", {"Linear"}},
                {"weights", weights},
                {"input_activations", nullptr},
                {"output_activations", nullptr}}}}}};
}

}  // namespace coda
