#include "src/train/f8_scales.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/core/f8.h"
#include "src/config/codec.h"
#include "src/config/retired.h"
#include "src/core/errors.h"
#include "src/engine/feed.h"
#include "src/engine/model_state.h"
#include "src/io/checkpoint.h"

namespace coda {

namespace {

/// Three: the first pass knows no scale but the weights'. It finds the size of activations, and of gradients on the
/// residual path. The second has those and finds the size of gradients within the blocks, which the third then sends
/// on to the layers below.
constexpr int kCalibrationPasses = 3;

/// Whether a run with that recorded precision has the tensors and the window of one with `now`.
bool has_same_tensors(const nlohmann::json& recorded, const PrecisionConfig& now) {
    for (const RetiredKey* key : retired_choices(recorded)) {
        // Neither room above a magnitude nor the format of a gradient changes a magnitude's place.
        if (key->path != "precision.margin" && key->path != "precision.qkv_gradient") return false;
    }
    PrecisionConfig then;
    read_value(without_retired_keys({{"precision", recorded}}).at("precision"), "the checkpoint's precision", {}, then);
    then.count_interval = now.count_interval;
    return then == now;
}

/// Whether the checkpoint is of a version that kept the gate/up projection's output in bf16, without a scale.
bool lacks_outputs(const SegmentInfo& history, const std::vector<ScaledTensor>& tensors) {
    const auto outputs = std::count_if(tensors.begin(), tensors.end(),
                                       [](const ScaledTensor& name) { return name.tensor.ends_with(".output"); });
    const auto others = static_cast<std::int64_t>(tensors.size()) - outputs;
    return outputs > 0 && history.bytes == kScaleWindow * others * size_of(DType::f32);
}

bool has_scales_of(const CheckpointInfo& checkpoint, const PrecisionConfig& now,
                   const std::vector<ScaledTensor>& tensors) {
    const auto history = std::find_if(checkpoint.segments.begin(), checkpoint.segments.end(),
                                      [](const SegmentInfo& segment) { return segment.name == kF8Segment; });
    if (history == checkpoint.segments.end()) return false;
    return has_same_tensors(checkpoint.state.at("config").value("precision", nlohmann::json("bf16")), now) &&
           !lacks_outputs(*history, tensors);
}

void add(const CodeCounts& counts, F8Record& record) {
    if (!record.lost) record.lost.emplace();
    const double elements = static_cast<double>(std::max<std::int64_t>(1, counts.elements));
    record.lost->saturated = std::max(record.lost->saturated, static_cast<double>(counts.saturated) / elements);
    record.lost->zeros = std::max(record.lost->zeros, static_cast<double>(counts.zeros) / elements);
}

/// A run keeps none but magnitudes (UpdateScales), and no scale follows from anything else.
void require_magnitudes(const CheckpointInfo& checkpoint, const std::vector<float>& history) {
    const auto bad =
        std::find_if(history.begin(), history.end(), [](float value) { return !(std::isfinite(value) && value >= 0); });
    require(bad == history.end(), checkpoint.folder.string(), ": element ", bad - history.begin(), " of segment '",
            kF8Segment, "' is ", *bad, ", and largest magnitudes are finite and not negative; --resume takes an ",
            "earlier checkpoint where this one is moved away");
}

}  // namespace

void require_finite(std::int64_t step, const std::vector<F8Record>& records) {
    for (const F8Record& record : records) {
        if (std::isfinite(record.amax)) continue;
        throw NonFiniteError(
            text("step ", step, ": an element of ", record.tensor, " of layer ", record.layer,
                 " is infinite. FP8 clips it, so loss and gradient norm do not show it. The step is not "
                 "saved, and earlier checkpoints are as they were; try a lower "
                 "optimizer.learning_rate, or --resume from the last checkpoint with one"));
    }
}

F8Scales::F8Scales(Executor& executor, const Schedules& schedules, const PrecisionConfig& precision)
    : executor_(executor), schedules_(schedules), precision_(precision), counter_(executor, schedules) {
    if (schedules.has(Pass::scales)) upload_scalar(executor, schedules.host.f8.input_scale, kNormalisedScale);
}

void F8Scales::load(const CheckpointInfo* checkpoint) {
    if (!schedules_.has(Pass::scales)) return;
    const ScaleViews& views = schedules_.host.f8;
    std::vector<float> history(static_cast<std::size_t>(views.history.count()), 0.0f);
    const auto columns = static_cast<std::size_t>(views.history.cols);
    const bool goes_on = checkpoint && has_scales_of(*checkpoint, precision_, schedules_.weights.tensors());
    if (goes_on) {
        read_segment(*checkpoint, kF8Segment, std::as_writable_bytes(std::span(history)));
        require_magnitudes(*checkpoint, history);
    }
    executor_.upload(views.history, history.data());
    // Scales follow only from the history: its row 0 replaced by itself gives them again.
    executor_.upload(views.amax, history.data());
    renew();
    if (!goes_on) renew();  // the first time found how large the weights are

    const std::vector<ScaledTensor>& tensors = schedules_.weights.tensors();
    const auto is_gradient = [](const ScaledTensor& name) { return name.tensor.ends_with(".output_gradient"); };
    needs_calibration_ = std::any_of(tensors.begin(), tensors.end(), is_gradient);
    for (std::size_t i = 0; i < history.size(); ++i) {
        if (history[i] > 0 && is_gradient(tensors[i % columns])) needs_calibration_ = false;
    }
}

void F8Scales::calibrate(const std::function<void()>& run) {
    for (int pass = 0; pass < kCalibrationPasses; ++pass) {
        run();
        renew();
    }
    needs_calibration_ = false;
}

void F8Scales::renew() {
    const HostViews& host = schedules_.host;
    upload_scalar(executor_, host.step, 0);  // before step 1: row 0 of the history
    upload_scalar(executor_, host.skip, 0);
    executor_.run(Pass::scales);
}

std::unique_ptr<Readback> F8Scales::read() {
    if (!schedules_.has(Pass::scales)) return nullptr;
    const ScaleViews& views = schedules_.host.f8;
    return executor_.read_values({views.amax, views.scales});
}

F8Counts* F8Scales::counter(std::int64_t step) {
    const std::int64_t interval = precision_.count_interval;
    if (!schedules_.has(Pass::scales) || interval == 0 || step % interval != 0) return nullptr;
    counter_.begin();
    return &counter_;
}

std::vector<F8Record> F8Scales::records(const std::vector<double>& values,
                                        const std::vector<CodeCounts>& counts) const {
    const std::vector<ScaledTensor>& tensors = schedules_.weights.tensors();
    std::vector<F8Record> records;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        const double largest = with_f8(tensors[t].format, [](auto f8) { return decltype(f8)::largest(); });
        const double amax = values[t], range = amax * values[tensors.size() + t] / largest;
        const auto same = [&](const F8Record& record) { return record.tensor == tensors[t].tensor; };
        auto record = std::find_if(records.begin(), records.end(), same);
        if (record == records.end()) record = records.insert(record, {.tensor = tensors[t].tensor});
        if (!counts.empty()) add(counts[t], *record);
        if (range < record->range) continue;
        record->layer = tensors[t].layer;
        record->amax = amax;
        record->range = range;
    }
    return records;
}

}  // namespace coda
