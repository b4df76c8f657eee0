#include "src/engine/weights_source.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/core/integers.h"
#include "src/core/errors.h"
#include "src/core/printable.h"
#include "src/engine/int4_units.h"
#include "src/engine/model_state.h"
#include "src/engine/recipe_check.h"
#include "src/io/checkpoint_weights.h"
#include "src/io/hf.h"
#include "src/io/json_integer.h"
#include "src/model/initialise.h"

namespace coda {
namespace {

/// Whether the log of a run says that it began with the weights of a Hugging Face folder.
bool began_with_folder(const std::filesystem::path& run) {
    std::ifstream log(run / "log.jsonl");
    std::string header;
    if (!std::getline(log, header)) return false;
    const nlohmann::json record = nlohmann::json::parse(header, nullptr, false);
    if (!record.is_object()) return false;
    const nlohmann::json command = record.value("command", nlohmann::json());
    return command.is_string() && command.get<std::string>().find(" --init-from") != std::string::npos;
}

}  // namespace

WeightsSource::WeightsSource(const Config& config, const WeightsRequest& request, bool trains,
                             const std::optional<RunTokenizer>& tokenizer, Console& console)
    : config_(config), console_(console), init_from_(request.init_from) {
    if (!request.resume) return;
    const std::filesystem::path run = config.output.directory;
    const auto skipped = [&](const std::string& message) {
        std::fprintf(request.err, "%s\n", printable(message).c_str());
    };
    checkpoint_ = newest_checkpoint(run, skipped);
    if (checkpoint_) {
        check_tokenizer(tokenizer, checkpoint_->state);
        check_recipe(config, checkpoint_->state, console);
        return;
    }
    require(trains, "--resume: there is no complete checkpoint in ", run.string(),
            ", so no weights to take from it; check --output.directory");
    if (!init_from_ && began_with_folder(run)) {
        throw UsageError(text("--resume: there is no complete checkpoint in ", run.string(),
                              ", and the run began with --init-from; give it again to start from those weights"));
    }
    console_.line(text("no complete checkpoint in ", run.string(), ": starting from the beginning"));
}

std::int64_t WeightsSource::counted(const char* what) const {
    return checkpoint_ ? integer_of(checkpoint_->state.at(what), text("the checkpoint's ", what)) : 0;
}

std::int64_t WeightsSource::sequences() const {
    if (!checkpoint_) return 0;
    const std::int64_t before =
        integer_of(checkpoint_->state.at("/config/training/seq_len"_json_pointer), "the checkpoint's training.seq_len");
    return before == config_.training.seq_len ? counted("sequences")
                                              : ceil_div(counted("sequences") * before, config_.training.seq_len);
}

nlohmann::json WeightsSource::saved(const char* key) const {
    return checkpoint_ ? checkpoint_->state.value(key, nlohmann::json()) : nlohmann::json();
}

void WeightsSource::say(const std::string& more) const {
    if (checkpoint_) {
        console_.line(text("resumed from ", checkpoint_->folder.string(), " at step ", checkpoint_->step));
    } else if (init_from_) {
        console_.line(text("weights from ", init_from_->string(), more));
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

std::vector<std::size_t> WeightsSource::int4_matrices(const ParameterLayout& layout) const {
    if (checkpoint_ || !init_from_) return {};
    return coda::int4_matrices(layout, HfWeights(*init_from_, config_.model, layout));
}

std::unique_ptr<MasterWeights> WeightsSource::open(const ParameterLayout& layout) const {
    std::unique_ptr<MasterWeights> weights;
    std::string more;
    if (checkpoint_) {
        weights = std::make_unique<CheckpointWeights>(*checkpoint_, layout);
    } else if (init_from_) {
        auto folder = std::make_unique<HfWeights>(*init_from_, config_.model, layout);
        if (const std::size_t packed = folder->int4_matrices(); packed > 0)
            more = text(", ", packed, " matrices of 4-bit integers");
        weights = std::move(folder);
    } else {
        weights = std::make_unique<InitialWeights>(config_.model, layout, config_.training.seed);
    }
    say(more);
    return weights;
}

}  // namespace coda
