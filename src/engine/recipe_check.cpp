#include "src/engine/recipe_check.h"

#include <set>
#include <string_view>

#include "kernels/core/error.h"
#include "src/config/codec.h"
#include "src/core/errors.h"

namespace coda {

void check_recipe(const Config& config, const nlohmann::json& state, Console& console) {
    const nlohmann::json& was = state.at("config");
    const nlohmann::json now = to_json(config);
    const nlohmann::json older = to_json(Config{});  // what a checkpoint says that is older than the key
    // Model keys that no result of a training step depends on.
    const std::set<std::string> free = {"model.max_position_embeddings", "model.initializer_range",
                                        "model.eos_token_id"};
    for (const char* section : {"model", "data", "training", "optimizer", "lr_schedule"}) {
        for (const auto& [name, value] : now.at(section).items()) {
            const nlohmann::json before = was.at(section).value(name, older.at(section).at(name));
            if (before == value) continue;
            const std::string key = text(section, ".", name);
            if ((section == std::string_view("model") && !free.contains(key)) || key == "optimizer.moments") {
                throw UsageError(text("--resume: ", key, " is ", value.dump(), ", but the checkpoint's is ",
                                      before.dump(), "; make them agree, or use another output.directory"));
            }
            console.line(
                text("note: ", key, " was ", before.dump(), " and is now ", value.dump(),
                     key == "training.seq_len" ? "; the data continues after as many tokens as were read" : ""));
        }
    }
}

}  // namespace coda
