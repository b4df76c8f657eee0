// A layer on its own, x -> x' and back from dx': the same bits as within the model's schedule, which the textbook
// checks.
#include "src/model/blocks/layer.h"

#include <algorithm>

#include "src/model/scratch.h"
#include "tests/catch.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr std::int64_t kBatch = 2, kSeqLen = 6, kTokens = kBatch * kSeqLen;

/// Values of operands before or after a step, as the model's first micro-batch makes them.
class Recorder : public StepObserver {
  public:
    explicit Recorder(ModelRun& run) : run_(run) {}
    bool reads_results() const override { return true; }
    void after(Pass pass, std::size_t index, double, double) override {
        const Step& step = run_.schedules[pass][index];
        for_each_operand(step.op, [&](const char* operand, const View& view, Access) {
            if (view.dtype != DType::i32 && view.dtype != DType::u8) {
                values_[text(step.name, " ", step.layer, " ", operand)] = run_.elements(view);
            }
        });
    }
    const std::vector<double>& of(const std::string& step, int layer, const std::string& operand) const {
        return values_.at(text(step, " ", layer, " ", operand));
    }

  private:
    ModelRun& run_;
    std::map<std::string, std::vector<double>> values_;
};

/// A layer and nothing else, with buffers that the test writes and reads.
struct LayerAlone {
    LayerAlone(const ModelConfig& config, const Precision& precision, Recompute recompute) {
        ParameterPlan count(0), plan(place(count, config));
        const Layer::Parameters parameters = place_layer(plan, config);
        tensors = plan.tensors();
        const BlockBuffers buffers(schedules.buffers, precision);
        const auto persistent = [&](const char* name, DType dtype, std::int64_t rows, std::int64_t cols) {
            return buffers.persistent(name, MemorySegment::inputs, dtype, rows, cols);
        };
        HostViews& host = schedules.host;
        host.master = persistent("master", precision.master, 1, plan.norm_end());
        host.first_norm = plan.matrix_end();
        host.norms = part_of(host.master, plan.matrix_end(), plan.norm_end() - plan.matrix_end());
        host.working = persistent("working", precision.storage, 1, plan.norm_end());
        host.gradient = persistent("gradient", precision.gradient, 1, plan.norm_end());
        host.positions = persistent("positions", DType::i32, 1, kTokens);
        host.rope = persistent("rope", precision.statistic, kSeqLen, config.head_dim);
        in = {persistent("x", precision.storage, kTokens, config.hidden_size),
              persistent("rstd", precision.statistic, 1, kTokens)};
        dx = persistent("dx", precision.storage, kTokens, config.hidden_size);

        const ModelShape shape = model_shape(config, kSeqLen, kBatch);
        const Weights weights(plan.matrices(), host.segments(), {}, buffers);
        Layer layer(parameters, weights, shape, recompute, buffers);
        StepList step(schedules.first);
        step.enter(Phase::forward, 0);
        out = layer.forward(step, host, in);
        step.enter(Phase::backward, 0);
        View written = dx;
        layer.backward(step, host, written, Beta::overwrite, {});
        add_scratch(schedules.buffers, {&schedules.first});
        executor = make_cpu_executor(schedules, without_sharing(schedules, plan_and_check(schedules)), nullptr);
    }

    static std::int64_t place(ParameterPlan& plan, const ModelConfig& config) {
        place_layer(plan, config);
        return plan.matrix_end();
    }
    static Layer::Parameters place_layer(ParameterPlan& plan, const ModelConfig& config) {
        plan.enter_layer(1);
        const Layer::Parameters parameters = Layer::declare(plan, config);
        plan.leave_layer();
        return parameters;
    }

    Schedules schedules;
    std::vector<HfTensor> tensors;
    Stream in, out;
    View dx;
    std::unique_ptr<Executor> executor;
};

}  // namespace

TEST_CASE("a layer built by itself has the bits of the same layer within the model, forward and backward") {
    const Precision precision = GENERATE(kFloat32, kMixedBf16);
    const Recompute recompute = GENERATE(Recompute::none, Recompute::swiglu, Recompute::mlp);
    const ModelConfig config = tiny_model();
    ModelRun model(config, {.batch = kBatch, .seq_len = kSeqLen, .recompute = recompute}, precision);
    model.start();
    model.set_weights(textbook::random_weights(config, 7));
    Recorder recorder(model);
    model.step({random_batch(config, kBatch, kSeqLen, 1)},
               [&](Pass pass) { model.executor->run_observed(pass, recorder); });

    // Layer 1, the last one: its dx' is what the head's backward pass leaves.
    LayerAlone alone(config, precision, recompute);
    Executor& executor = *alone.executor;
    const HostViews& host = alone.schedules.host;
    const auto segment_part = [&](const View& segment, const HfTensor& tensor, std::int64_t row) {
        return part_of(segment, tensor.row_offset(row), tensor.cols);
    };
    std::vector<std::byte> staging;
    const auto for_each_row = [&](const auto& fn) {
        for (const HfTensor& tensor : alone.tensors) {
            const auto other = std::find_if(model.layout.tensors.begin(), model.layout.tensors.end(),
                                            [&](const HfTensor& each) { return each.name == tensor.name; });
            for (std::int64_t row = 0; row < tensor.rows; ++row) fn(*other, tensor, row);
        }
    };
    const auto copy = [&](const View& from, const View& to) {
        executor.upload(to, model.executor->bytes(from, staging).data());
    };
    for_each_row([&](const HfTensor& theirs, const HfTensor& ours, std::int64_t row) {
        copy(segment_part(model.schedules.host.master, theirs, row), segment_part(host.master, ours, row));
        copy(segment_part(model.schedules.host.working, theirs, row), segment_part(host.working, ours, row));
    });
    copy(model.schedules.host.rope, host.rope);
    copy(model.schedules.host.positions, host.positions);

    set_elements(executor, alone.in.x, recorder.of("qkv", 1, "a"));
    set_elements(executor, alone.in.rstd, recorder.of("qkv", 1, "rstd"));
    set_elements(executor, alone.dx, recorder.of("head_dgrad", -1, "dx"));
    executor.run(Pass::first);

    CHECK(elements(executor, alone.out.x) == recorder.of("down", 1, "x"));
    CHECK(elements(executor, alone.out.rstd) == recorder.of("rstd_next", 1, "rstd"));
    CHECK(elements(executor, alone.dx) == recorder.of("qkv_dgrad", 1, "dx"));
    for_each_row([&](const HfTensor& theirs, const HfTensor& ours, std::int64_t row) {
        INFO(ours.name << ", row " << row);
        CHECK(elements(executor, segment_part(host.gradient, ours, row)) ==
              model.elements(segment_part(model.schedules.host.gradient, theirs, row)));
    });
}
