#include "src/engine/session.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/core/build_id.h"
#include "src/engine/device.h"
#include "src/engine/hopper_executor.h"
#include "src/engine/model_state.h"
#include "src/engine/ranks.h"

namespace coda {

Session::Session(const Config& config, PassSet passes, bool times_ops, Console& console,
                 const GenerationShape& generation, Team* team)
    : config_(config), console_(console), layout_(parameter_layout(config.model)) {
    const DeviceChoice device = resolve_device(config, passes);
    if (const std::string why = why_not_gpu(config, passes); !why.empty())
        console.line("note: on the CPU, because " + why);
    const RankOf rank = team ? RankOf{team->rank(), team->ranks()} : RankOf{};
    Ranks(team).together([&] {
        require_device(config, device, passes);
        if (device == DeviceChoice::cuda && team) select_gpu(team->device());
        ScheduleOptions options = schedule_options(config, precision_of(config, device), rank);
        if (generation.batch > 0) options.generation = generation;
        schedules_ = build_schedules(config.model, layout_, options, passes);
        plan_ = plan_and_check(schedules_);
        if (generation.batch > 0) {
            require_generation_fit_on(device, schedules_, plan_);
        } else {
            require_fit_on(config, device, passes, plan_, rank);
        }
    });
    if (passes.has(Pass::update)) {
        for (const std::string& refusal : hf_refusals(config.model)) console.line("note: " + refusal);
    }

    executor_ = make_executor(device, schedules_, plan_, team);
    tokens_ = std::make_unique<TokenInput>(*executor_, schedules_);
    feed_ = std::make_unique<Feed>(*executor_, host(), *tokens_, config.training.seq_len);
    if (times_ops) {
        timing_ = std::make_unique<TimingRecorder>(schedules_, executor_->peaks(), executor_->asynchronous());
    }
    const std::vector<double> rope = rope_table(config.model, host().rope.rows);
    const std::vector<float> single(rope.begin(), rope.end());
    executor_->upload(host().rope, single.data());
}

void Session::set_weights(const MasterWeights& weights) {
    send_weights(*executor_, schedules_, layout_, weights);
    tokens_->set_rows(layout_, weights);
}

void Session::set_alpha(std::int64_t valid_targets) {
    upload_scalar(*executor_, host().alpha, valid_targets > 0 ? 1.0 / static_cast<double>(valid_targets) : 0.0);
}

void Session::watch_tensors(const std::filesystem::path& file, std::int64_t every, const std::string& command) {
    auto out = std::make_unique<TensorStatsFile>(file, description(command),
                                                 [this](const std::string& said) { console_.line(said); });
    tensors_ = std::make_unique<TensorStatsRecorder>(*executor_, schedules_, every, std::move(out));
}

void Session::evaluate(const TokenBatch& batch) {
    set_alpha(batch.valid);
    feed(batch);
    run(Pass::evaluate);
}

void Session::run(Pass pass) {
    if (tensors_ && tensors_->watching()) {
        executor_->run_observed(pass, tensors_->watch());
    } else if (timing_ && timing_->times_ops()) {
        executor_->run_observed(pass, *timing_);
    } else {
        executor_->run(pass);
    }
}

nlohmann::json Session::description(const std::string& command) const {
    return {{"device", executor_->device_name()},
            {"build", build_id()},
            {"command", command},
            {"config", to_json(config_)}};
}

void Session::write_timing(const std::filesystem::path& file, const std::string& command) {
    if (!timing_) return;
    timing_->write(file, description(command));
    console_.line(timing_->table());
    console_.line(text("timing in ", file.string(), ", trace in ", trace_file_of(file).string()));
}

}  // namespace coda
