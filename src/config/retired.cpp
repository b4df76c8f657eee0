#include "src/config/retired.h"

#include <algorithm>

#include "src/core/errors.h"

namespace coda {

namespace {

const std::string kPrecision = "precision.";

std::vector<RetiredKey> build() {
    std::vector<RetiredKey> keys;
    for (const char* gemm : {"qkv", "attn_out", "gate_up", "down"}) {
        keys.push_back({kPrecision + gemm, "fp8",
                        "the GEMMs of a layer take FP8 all together, and bf16_first_layers and bf16_last_layers say "
                        "which layers do not"});
    }
    keys.push_back({kPrecision + "head_forward", "bf16",
                    "logits are of bf16 operands in every run, because FP8 logits cost a pretrained model of 135M "
                    "parameters 0.046 nats, more than all layers in FP8"});
    keys.push_back({kPrecision + "qkv_gradient", "e5m2",
                    "it is \"e5m2\" in every run, which keeps gradients of q and k that are far smaller than those of "
                    "v"});
    keys.push_back({kPrecision + "margin", 0, "it is 0 in every run"});
    keys.push_back({kPrecision + "window", 16, "it is 16 in every run"});
    keys.push_back({"deterministic", true,
                    "every run gives the same bits again, because the fixed order of sums costs no time that can be "
                    "measured"});
    return keys;
}

}  // namespace

const std::vector<RetiredKey>& retired_keys() {
    static const std::vector<RetiredKey> keys = build();
    return keys;
}

const RetiredKey* retired_key(const std::string& path) {
    const auto found = std::find_if(retired_keys().begin(), retired_keys().end(),
                                    [&](const RetiredKey& key) { return key.path == path; });
    return found == retired_keys().end() ? nullptr : &*found;
}

std::string gone_text(const RetiredKey& key, const std::string& where) {
    return text(where, " is gone: ", key.reason, "; take it out");
}

void require_fixed(const RetiredKey& key, const nlohmann::json& value, const std::string& where) {
    if (value != key.fixed) throw UsageError(gone_text(key, where));
}

nlohmann::json without_retired_keys(nlohmann::json document) {
    for (const RetiredKey& key : retired_keys()) {
        const auto dot = key.path.find('.');
        nlohmann::json* parent = &document;
        if (dot != std::string::npos) {
            if (!document.is_object() || !document.contains(key.path.substr(0, dot))) continue;
            parent = &document[key.path.substr(0, dot)];
        }
        if (parent->is_object()) parent->erase(dot == std::string::npos ? key.path : key.path.substr(dot + 1));
    }
    return document;
}

std::vector<const RetiredKey*> retired_choices(const nlohmann::json& precision) {
    std::vector<const RetiredKey*> choices;
    if (!precision.is_object()) return choices;
    for (const RetiredKey& key : retired_keys()) {
        if (!key.path.starts_with(kPrecision)) continue;
        const auto found = precision.find(key.path.substr(kPrecision.size()));
        if (found != precision.end() && *found != key.fixed) choices.push_back(&key);
    }
    return choices;
}

}  // namespace coda
