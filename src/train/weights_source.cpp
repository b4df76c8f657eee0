#include "src/train/weights_source.h"

#include <set>
#include <string_view>

#include "src/core/errors.h"
#include "src/io/checkpoint_weights.h"
#include "src/io/hf.h"
#include "src/model/initialise.h"
#include "src/train/model_state.h"

namespace coda {

WeightsSource::WeightsSource(const Config& config, const RunOptions& options, bool trains,
                             const std::optional<RunTokenizer>& tokenizer, Console& console)
    : config_(config), console_(console), init_from_(options.init_from) {
    if (!options.resume) return;
    const std::filesystem::path run = config.output.directory;
    const auto skipped = [&](const std::string& message) { std::fprintf(options.err, "%s\n", message.c_str()); };
    checkpoint_ = newest_checkpoint(run, skipped);
    if (checkpoint_) {
        check_tokenizer(tokenizer, checkpoint_->state);
        check_resumable(checkpoint_->state);
        return;
    }
    require(trains, "--resume: there is no complete checkpoint in ", run.string(),
            ", so no weights to take from it; check --output.directory");
    console_.line(text("no complete checkpoint in ", run.string(), ": starting from the beginning"));
}

void WeightsSource::check_resumable(const nlohmann::json& saved) const {
    const nlohmann::json& was = saved.at("config");
    const nlohmann::json now = to_json(config_);
    // Model keys that no result of a training step depends on.
    const std::set<std::string> free = {"model.max_position_embeddings", "model.initializer_range",
                                        "model.eos_token_id"};
    for (const char* section : {"model", "data", "training", "optimizer", "lr_schedule"}) {
        for (const auto& [name, value] : now.at(section).items()) {
            const nlohmann::json before = was.at(section).value(name, value);
            if (before == value) continue;
            const std::string key = text(section, ".", name);
            if ((section == std::string_view("model") && !free.contains(key)) || key == "optimizer.moments") {
                throw UsageError(text("--resume: ", key, " is ", value.dump(), ", but the checkpoint's is ",
                                      before.dump(), "; make them agree, or use another output.directory"));
            }
            console_.line(text("note: ", key, " was ", before.dump(), " and is now ", value.dump()));
        }
    }
}

std::int64_t WeightsSource::counted(const char* what) const {
    return checkpoint_ ? checkpoint_->state.at(what).get<std::int64_t>() : 0;
}

void WeightsSource::say() const {
    if (checkpoint_) {
        console_.line(text("resumed from ", checkpoint_->folder.string(), " at step ", checkpoint_->step));
    } else if (init_from_) {
        console_.line(text("weights from ", init_from_->string()));
    }
}

void WeightsSource::load(Session& session) const {
    if (checkpoint_ && session.schedules().has(Pass::update)) {
        load_state(session.executor(), session.schedules(), session.layout(), *checkpoint_);
        say();
    } else {
        session.set_weights(*open(session.layout()));
    }
}

std::unique_ptr<MasterWeights> WeightsSource::open(const ParameterLayout& layout) const {
    std::unique_ptr<MasterWeights> weights;
    if (checkpoint_) {
        weights = std::make_unique<CheckpointWeights>(*checkpoint_, layout);
    } else if (init_from_) {
        weights = std::make_unique<HfWeights>(*init_from_, layout);
    } else {
        weights = std::make_unique<InitialWeights>(config_.model, layout, config_.training.seed);
    }
    say();
    return weights;
}

}  // namespace coda
