#include "tools/bench/step_times.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <span>

#include "kernels/cost.h"
#include "kernels/hopper/sm90/check.h"
#include "src/core/median.h"
#include "src/engine/device.h"
#include "src/engine/feed.h"
#include "src/engine/hopper_executor.h"
#include "src/engine/model_state.h"
#include "src/engine/plan_report.h"
#include "src/model/initialise.h"
#include "src/train/f8_scales.h"
#include "tools/bench/step_floor.h"

namespace coda::bench {

namespace {

constexpr int kObservedRuns = 5;
constexpr int kStepsOfTurn = 5;  // timed in a row, of each side
constexpr double kGiB = 1 << 30;

double now_ms() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

std::int64_t free_memory() {
    std::size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<std::int64_t>(free);
}

TokenBatch random_batch(const Config& config) {
    const auto count = static_cast<std::size_t>(config.training.micro_batch_size * config.training.seq_len);
    std::mt19937_64 random(config.training.seed);
    std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(config.model.vocab_size - 1));
    TokenBatch batch;
    for (std::size_t i = 0; i < count; ++i) {
        batch.tokens.push_back(token(random));
        batch.targets.push_back(token(random));
    }
    batch.begins = begins_at(static_cast<std::int32_t>(config.model.bos_token_id.value_or(-1)), batch.tokens);
    batch.valid = static_cast<std::int64_t>(count);
    return batch;
}

MemoryPlan plan_of(const Config& config, Schedules& schedules, const ParameterLayout& layout) {
    schedules = build_schedules(config.model, layout, schedule_options(config, kMixedBf16), passes_of(Mode::train));
    return plan_and_check(schedules);
}

std::int64_t arena_bytes(const Config& config) {
    Schedules schedules;
    return plan_of(config, schedules, parameter_layout(config.model)).arena_bytes();
}

/// Collects the times of every step of a pass over several runs.
class StepMedians : public StepObserver {
  public:
    bool reads_results() const override { return false; }
    void after(Pass, std::size_t index, double, double ms) override { times_[index].push_back(ms); }
    double of(std::size_t index) const { return median_of(times_.at(index)); }

  private:
    std::map<std::size_t, std::vector<double>> times_;
};

/// The model of a configuration, ready to run its passes.
class Session {
  public:
    explicit Session(const Config& config)
        : layout_(parameter_layout(config.model)), plan_(plan_of(config, schedules_, layout_)) {
        require_fit_on(config, DeviceChoice::cuda, passes_of(Mode::train), plan_);
        const std::int64_t before = free_memory();
        executor_ = make_hopper_executor(schedules_, plan_, nullptr);
        const std::vector<double> rope = rope_table(config.model, config.training.seq_len);
        executor_->upload(schedules_.host.rope, std::vector<float>(rope.begin(), rope.end()).data());
        send_weights(*executor_, schedules_, layout_, InitialWeights(config.model, layout_, config.training.seed));
        F8Scales scales(*executor_, schedules_, config.precision);
        scales.load(nullptr);

        const HostViews& host = schedules_.host;
        const TokenBatch batch = random_batch(config);
        TokenInput tokens(*executor_, schedules_);
        Feed(*executor_, host, tokens, config.training.seq_len).upload(batch);
        upload_scalar(*executor_, host.alpha, 1.0 / static_cast<double>(batch.valid));
        if (scales.needs_calibration()) {
            scales.calibrate([&] { executor_->run(Pass::first); });
        }
        upload_scalar(*executor_, host.lr, 0);
        upload_scalar(*executor_, host.correction1, 1 / (1 - config.optimizer.beta1));
        upload_scalar(*executor_, host.correction2, 1 / (1 - config.optimizer.beta2));
        upload_scalar(*executor_, host.step, 1);
        upload_scalar(*executor_, host.drop_above, std::numeric_limits<double>::infinity());
        timed(Pass::first);
        timed(Pass::update);
        used_ = before - free_memory();
        require(download_scalar(*executor_, host.skip) == 0,
                "the first step's loss or gradient norm is not finite: ", download_scalar(*executor_, host.loss), ", ",
                download_scalar(*executor_, host.norm));
    }

    /// Milliseconds of a pass as a graph, including launch and wait.
    double timed(Pass pass) {
        const double start = now_ms();
        executor_->run(pass);
        executor_->finish();
        return now_ms() - start;
    }

    StepMedians observed(Pass pass) {
        StepMedians medians;
        for (int run = 0; run < kObservedRuns; ++run) executor_->run_observed(pass, medians);
        return medians;
    }

    /// What nvidia-smi says while two steps run.
    Clocks clocks() {
        for (int i = 0; i < 2; ++i) executor_->run(Pass::first);
        const Clocks clocks = current_clocks();
        executor_->finish();
        return clocks;
    }

    const ParameterLayout& layout() const { return layout_; }
    const Schedules& schedules() const { return schedules_; }
    const Memory& memory() const { return executor_->memory(); }
    double peak_flops_per_s() const { return executor_->peaks().flops_per_s; }
    std::int64_t used() const { return used_; }
    std::int64_t arena_bytes() const { return plan_.arena_bytes(); }

  private:
    ParameterLayout layout_;
    Schedules schedules_;
    MemoryPlan plan_;
    std::unique_ptr<Executor> executor_;
    std::int64_t used_ = 0;
};

/// Fills in everything that is measured op by op.
void add_ops(Session& session, StepTimes& times) {
    const StepMedians medians = session.observed(Pass::first);
    double forward = 0, all = 0;
    const Schedule& steps = session.schedules().first;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const double ms = medians.of(i);
        const bool is_forward = steps[i].phase == Phase::forward;
        all += ms;
        if (is_forward) forward += ms;
        switch (work_of(steps[i].op)) {
            case Work::gemm: times.products += ms; break;
            case Work::attention: (is_forward ? times.attention_forward : times.attention_backward) += ms; break;
            case Work::other: times.other += ms; break;
        }
    }
    times.forward = times.forward_backward * forward / all;
    times.backward = times.forward_backward - times.forward;

    const StepMedians update = session.observed(Pass::update);
    const Schedule& updates = session.schedules().update;
    for (std::size_t i = 0; i < updates.size(); ++i) {
        if (std::holds_alternative<SumSquares>(updates[i].op)) times.grad_norm += update.of(i);
        if (std::holds_alternative<GradNorm>(updates[i].op)) times.grad_norm += update.of(i);
        if (std::holds_alternative<AdamW>(updates[i].op)) times.adamw += update.of(i);
        if (std::holds_alternative<UpdateScales>(updates[i].op)) times.f8_update += update.of(i);
        if (std::holds_alternative<QuantiseF8>(updates[i].op)) times.f8_update += update.of(i);
        if (std::holds_alternative<RoundWeights>(updates[i].op)) times.f8_update += update.of(i);
    }
}

/// A session and what was timed of it, turn by turn.
class Side {
  public:
    Side(const Config& config, bool floor) : config_(config), session_(config) {
        if (floor) floor_ = std::make_unique<GemmFloor>(session_.schedules().first, session_.memory());
    }

    /// NOTE: at the power limit, clocks follow the power drawn in the half second before. So each side runs several
    /// times in a row, and the first run is not timed: our step follows a step, as in training, and the floor follows a
    /// floor.
    void warm_up() { turn(1); }
    void measure(int steps) { turns_.push_back(turn(steps)); }
    StepResult result(const StepTimeOptions& options);

  private:
    struct Turn {
        double forward_backward = 0, update = 0, whole = 0, products = 0;  // medians
    };
    Turn turn(int steps);
    std::vector<double> rounds(double Turn::*part) const {
        std::vector<double> values;
        for (const Turn& made : turns_) values.push_back(made.*part);
        return values;
    }
    void add_floor(StepTimes& times, const StepTimeOptions& options) const;

    Config config_;
    Session session_;
    std::unique_ptr<GemmFloor> floor_;
    std::vector<Turn> turns_;
};

Side::Turn Side::turn(int steps) {
    std::vector<double> forward_backward, update, whole, products;
    for (int i = -1; i < steps; ++i) {
        const double of_first = session_.timed(Pass::first), of_update = session_.timed(Pass::update);
        if (i < 0) continue;
        forward_backward.push_back(of_first);
        update.push_back(of_update);
        whole.push_back(of_first + of_update);
    }
    Turn made{median_of(forward_backward), median_of(update), median_of(whole)};
    if (!floor_) return made;
    floor_->fill();
    for (int i = -1; i < steps; ++i) {
        const double start = now_ms();
        floor_->run();
        if (i >= 0) products.push_back(now_ms() - start);
    }
    made.products = median_of(products);
    return made;
}

void Side::add_floor(StepTimes& times, const StepTimeOptions& options) const {
    const auto layers = static_cast<double>(config_.model.num_hidden_layers);
    const auto faster = [&](double ours, const std::optional<double>& theirs) {
        return theirs ? std::min(ours, layers * *theirs) : ours;
    };
    const double attention = faster(times.attention_forward, options.cudnn_forward_ms) +
                             faster(times.attention_backward, options.cudnn_backward_ms);
    times.has_floor = true;
    times.floor_products = median_of(rounds(&Turn::products));
    times.floor = times.floor_products + attention;
    std::vector<double> ratios;
    for (const Turn& made : turns_) ratios.push_back(made.forward_backward / (made.products + attention));
    times.floor_ratio = median_of(ratios);
}

StepResult Side::result(const StepTimeOptions& options) {
    StepResult result;
    result.forward_backward_rounds = rounds(&Turn::forward_backward);
    result.whole_rounds = rounds(&Turn::whole);
    StepTimes& times = result.times;
    times.forward_backward = median_of(result.forward_backward_rounds);
    times.update = median_of(rounds(&Turn::update));
    times.whole = median_of(result.whole_rounds);
    add_ops(session_, times);
    if (floor_) add_floor(times, options);
    result.parameters = static_cast<double>(session_.layout().parameters);
    result.tokens = static_cast<double>(config_.training.micro_batch_size * config_.training.seq_len);
    result.model_flops = step_flops(config_, session_.schedules());
    result.peak_flops_per_s = session_.peak_flops_per_s();
    result.peak_gib = static_cast<double>(session_.used()) / kGiB;
    result.arena_gib = static_cast<double>(session_.arena_bytes()) / kGiB;
    if (options.clocks) result.clocks = session_.clocks();
    return result;
}

void take_turns(std::span<Side* const> sides, const StepTimeOptions& options) {
    for (const double start = now_ms(); now_ms() - start < options.warm_up * 1e3;)
        for (Side* side : sides) side->warm_up();
    for (int left = options.steps; left > 0; left -= kStepsOfTurn)
        for (Side* side : sides) side->measure(std::min(left, kStepsOfTurn));
}

StepResult measure_alone(const Config& config, const StepTimeOptions& options, bool floor) {
    Side side(config, floor);
    take_turns(std::array{&side}, options);
    return side.result(options);
}

}  // namespace

StepMeasurement measure_step(const Config& given, const StepTimeOptions& options) {
    Config config = given;
    config.training.grad_accumulation_steps = 1;
    require_device(config, DeviceChoice::cuda, passes_of(Mode::train));
    if (!config.precision.has_fp8) return {.step = measure_alone(config, options, options.floor), .bf16 = {}};
    if (!options.bf16) return {.step = measure_alone(config, options, false), .bf16 = {}};

    Config wide = config;
    wide.precision = PrecisionConfig{};
    StepMeasurement made;
    made.in_turns = arena_bytes(config) + arena_bytes(wide) + kDeviceOverheadBytes <= free_memory();
    if (made.in_turns) {
        Side step(config, false), bf16(wide, false);
        take_turns(std::array{&step, &bf16}, options);
        made.step = step.result(options);
        made.bf16 = bf16.result(options);
    } else {
        made.bf16 = measure_alone(wide, options, false);
        made.step = measure_alone(config, options, false);
    }
    return made;
}

}  // namespace coda::bench
