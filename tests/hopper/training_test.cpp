// Whole training steps on the GPU compared with the same schedule by cpu::run in bf16 storage. Both round at the same
// points, so they differ only by the order of fp32 sums, and by bf16 roundings that fall the other way because of it.
//
// Tolerances. A rounding that falls the other way moves one element by 2^-8 of itself. Few do, and a loss is a mean
// over hundreds of tokens: 2e-3 relative. Gradients of a whole tensor: cosine above 0.999, norm within 1%.
#include "src/engine/hopper_executor.h"
#include "tests/hopper/harness.h"
#include "tests/hopper/training_case.h"

using namespace coda;
using namespace coda::test;

namespace {

const TrainingCase kCases[] = {
    {.name = "heads of 64"},
    {.name = "heads of 128, tied head", .head_dim = 128, .tied = true},
    {.name = "norms of q and k", .norms = true},
    {.name = "norms of q and k, heads of 128, documents",
     .head_dim = 128,
     .tied = true,
     .norms = true,
     .sizes = {.batch = 2, .seq_len = 100, .document_mask = true}},
    {.name = "yarn, biases of attention", .bias = true, .yarn = true},
    {.name = "yarn, norms of q and k, heads of 128", .head_dim = 128, .norms = true, .yarn = true},
    {.name = "a window", .window = 37},
    {.name = "heads of 128, a window and documents",
     .head_dim = 128,
     .window = 20,
     .sizes = {.batch = 2, .seq_len = 200, .document_mask = true}},
    {.name = "biases of attention", .bias = true},
    {.name = "GELU, every bias, head in chunks",
     .bias = true,
     .mlp = MlpKind::gelu_tanh,
     .sizes = {.batch = 2, .seq_len = 100, .chunks = 3},
     .micro_batches = 2},
    {.name = "exact GELU made again",
     .tied = true,
     .bias = true,
     .mlp = MlpKind::gelu_exact,
     .sizes = {.batch = 1, .seq_len = 192, .recompute = Recompute::swiglu}},
    {.name = "learned positions, documents, accumulation",
     .tied = true,
     .learned = true,
     .sizes = {.batch = 2, .seq_len = 100, .document_mask = true},
     .micro_batches = 2},
    {.name = "GELU without biases, recompute",
     .mlp = MlpKind::gelu_tanh,
     .sizes = {.batch = 1, .seq_len = 192, .recompute = Recompute::mlp}},
    {.name = "gpt2, documents, chunks, accumulation",
     .tied = true,
     .bias = true,
     .mlp = MlpKind::gelu_tanh,
     .learned = true,
     .layernorm = true,
     .sizes = {.batch = 2, .seq_len = 100, .chunks = 3, .document_mask = true},
     .micro_batches = 2},
    {.name = "LayerNorm without biases of matrices, recompute",
     .mlp = MlpKind::gelu_exact,
     .layernorm = true,
     .sizes = {.batch = 1, .seq_len = 192, .recompute = Recompute::mlp}},
    {.name = "head in chunks, documents, accumulation",
     .sizes = {.batch = 2, .seq_len = 100, .chunks = 3, .document_mask = true},
     .micro_batches = 2},
    {.name = "SwiGLU recomputed", .sizes = {.batch = 1, .seq_len = 192, .recompute = Recompute::swiglu}},
    {.name = "recompute, bf16 moments",
     .sizes = {.batch = 1, .seq_len = 192, .recompute = Recompute::mlp, .optimizer = {.moments = Moments::bf16}}},
};

/// Before every step, fills what the step writes and does not read by a call of the driver. This is for
/// compute-sanitizer's initcheck, which does not see what TMA stores. With the fills, memory counts as initialised from
/// the step that has it as its output, and a read of anything else is reported.
Schedule with_outputs_filled(const Schedule& schedule) {
    Schedule filled;
    for (const Step& step : schedule) {
        std::vector<View> read;
        for_each_operand(step.op, [&](const char*, const View& view, Access access) {
            if (access == Access::in) read.push_back(view);
        });
        for_each_operand(step.op, [&](const char* name, const View& view, Access access) {
            const bool in_place = std::any_of(read.begin(), read.end(), [&](const View& other) {
                return other.buffer == view.buffer && other.offset == view.offset;
            });
            if ((access == Access::out || name == std::string("scratch")) && !in_place)
                filled.push_back({step.phase, step.layer, "fill", Zero{.out = view}});
        });
        filled.push_back(step);
    }
    return filled;
}

/// Counts steps and checks that their times are times.
struct Observer : StepObserver {
    bool results = false;
    std::size_t steps = 0;
    bool reads_results() const override { return results; }
    void after(Pass, std::size_t, double, double ms) override {
        CHECK(ms >= 0);
        ++steps;
    }
};

}  // namespace

TEST_CASE("ten steps of training on the GPU agree with the CPU in bf16 storage", "[gpu]") {
    if (!has_hopper()) return;
    for (const TrainingCase& c : kCases) {
        const ModelConfig model = model_of(c);
        const textbook::Weights weights = random_weights(model, 5);
        ModelRun gpu(model, c.sizes, kMixedBf16), cpu(model, c.sizes, kMixedBf16);
        gpu.start(make_hopper_executor);
        cpu.start();
        for (ModelRun* run : {&gpu, &cpu}) run->set_weights(weights);
        for (int step = 1; step <= 10; ++step) {
            const std::vector<textbook::Batch> batches = batches_of(c, model, step);
            const double have = gpu.step(batches), want = cpu.step(batches);
            INFO(c.name << ", step " << step << ": loss " << have << " on the GPU, " << want << " on the CPU");
            CHECK(std::abs(have - want) <= 2e-3 * want);
            if (step == 1) check_gradients(gpu.gradients(), cpu.gradients(), {1e-3, 1e-3, 0.01});
            const double norm = gpu.update(step, kLearningRate, kBeta1, kBeta2);
            const double expected_norm = cpu.update(step, kLearningRate, kBeta1, kBeta2);
            CHECK(std::abs(norm - expected_norm) <= 0.01 * expected_norm);
        }
    }
}

TEST_CASE("training on the GPU gives the same bits again, as a graph and step by step", "[gpu]") {
    if (!has_hopper()) return;
    const TrainingCase& c = kCases[0];
    const ModelConfig model = model_of(c);
    const textbook::Weights weights = random_weights(model, 6);
    std::vector<double> first;
    for (int how = 0; how < 4; ++how) {
        ModelRun run(model, c.sizes, kMixedBf16);
        run.start(make_hopper_executor);
        run.set_weights(weights);
        for (int step = 1; step <= 3; ++step) {
            run.step(batches_of(c, model, step));
            if (how >= 2) {  // the pass again, by its steps: it begins by overwriting, so the results are the same
                Observer observer;
                observer.results = how == 3;
                run.executor->run_observed(Pass::first, observer);
                CHECK(observer.steps == run.schedules.first.size());
            }
            run.update(step, kLearningRate, kBeta1, kBeta2);
        }
        const std::vector<double> master = run.elements(run.schedules.host.master);
        if (how == 0) first = master;
        INFO("run " << how);
        CHECK(master == first);
    }
}

TEST_CASE("no op of a step reads what the step has not written: a poisoned arena gives the same bits", "[gpu]") {
    if (!has_hopper()) return;
    for (const TrainingCase& c : kCases) {
        const ModelConfig model = model_of(c);
        const textbook::Weights weights = random_weights(model, 8);
        std::vector<std::vector<double>> results;
        for (const int poison : {0x00, 0xff}) {  // 0xff: NaN in every floating-point type
            ModelRun run(model, c.sizes, kMixedBf16);
            run.start(make_hopper_executor);
            run.set_weights(weights);
            poison_arena(*run.executor, run.schedules, run.plan, poison);
            std::vector<double> result{run.evaluate(random_batch(model, c.sizes.batch, c.sizes.seq_len, 77))};
            for (int step = 1; step <= 2; ++step) {
                result.push_back(run.step(batches_of(c, model, step)));
                run.update(step, kLearningRate, kBeta1, kBeta2);
            }
            const std::vector<double> master = run.elements(run.schedules.host.master);
            result.insert(result.end(), master.begin(), master.end());
            results.push_back(result);
        }
        INFO(c.name);
        CHECK(std::isfinite(results[1][0]));
        CHECK(results[0] == results[1]);
    }
}

// For compute-sanitizer's initcheck: no op reads memory that nothing has written.
TEST_CASE("two steps with every output filled before its op", "[gpu]") {
    if (!has_hopper()) return;
    for (const TrainingCase& c : kCases) {
        const ModelConfig model = model_of(c);
        const textbook::Weights weights = random_weights(model, 8);
        ModelRun run(model, c.sizes, kMixedBf16), cpu(model, c.sizes, kMixedBf16);
        for (Schedule* schedule :
             {&run.schedules.first, &run.schedules.further, &run.schedules.update, &run.schedules.derive})
            *schedule = with_outputs_filled(*schedule);
        run.start([](const Schedules& schedules, const MemoryPlan& plan, Team*) {
            return make_hopper_executor(schedules, without_sharing(schedules, plan), nullptr);
        });
        cpu.start();
        for (ModelRun* each : {&run, &cpu}) each->set_weights(weights);
        for (int step = 1; step <= 2; ++step) {
            Observer observer;  // step by step: the tool does not follow a graph's fills
            const std::vector<textbook::Batch> batches = batches_of(c, model, step);
            const double loss = run.step(batches, [&](Pass pass) { run.executor->run_observed(pass, observer); });
            INFO(c.name << ", step " << step);
            CHECK(std::abs(loss - cpu.step(batches)) <= 2e-3 * loss);
            for (ModelRun* each : {&run, &cpu}) each->update(step, kLearningRate, kBeta1, kBeta2);
        }
    }
}

TEST_CASE("the evaluation loss on the GPU agrees with the CPU's in bf16 storage", "[gpu]") {
    if (!has_hopper()) return;
    for (const TrainingCase& c : kCases) {
        const ModelConfig model = model_of(c);
        const textbook::Weights weights = random_weights(model, 9);
        const textbook::Batch batch = random_batch(model, c.sizes.batch, c.sizes.seq_len, 78, c.sizes.document_mask);
        double losses[2];
        for (const bool on_gpu : {false, true}) {
            ModelRun run(model, c.sizes, kMixedBf16);
            on_gpu ? run.start(make_hopper_executor) : run.start();
            run.set_weights(weights);
            losses[on_gpu] = run.evaluate(batch);
        }
        INFO(c.name << ": " << losses[1] << " on the GPU, " << losses[0] << " on the CPU");
        CHECK(std::abs(losses[1] - losses[0]) <= 2e-3 * losses[0]);
    }
}

TEST_CASE("what goes up to the GPU comes down again, in parts of the staging ring", "[gpu]") {
    if (!has_hopper()) return;
    ModelConfig model = small_model(64, false);
    model.vocab_size = 20000;  // weights of 50 MB: more than the ring
    ModelRun run(model, {.batch = 1, .seq_len = 64}, kMixedBf16);
    run.start(make_hopper_executor);
    const View master = run.schedules.host.master, loss = run.schedules.host.loss, skip = run.schedules.host.skip;
    std::vector<float> up(static_cast<std::size_t>(master.count())), down(up.size());
    for (std::size_t i = 0; i < up.size(); ++i) up[i] = static_cast<float>(i % 1000003);
    run.executor->upload(master, up.data());
    run.executor->download(master, down.data());
    CHECK(up == down);

    CHECK(run.executor->first_nonfinite(master) == -1);
    up[up.size() - 3] = INFINITY;
    up[up.size() - 2] = NAN;
    run.executor->upload(master, up.data());
    CHECK(run.executor->first_nonfinite(master) == static_cast<std::int64_t>(up.size()) - 3);

    // Each readback has the values of its own place in the order of calls, whenever it is read.
    std::vector<std::unique_ptr<Readback>> readbacks;
    for (int i = 0; i < 100; ++i) {
        upload_scalar(*run.executor, loss, 0.5 * i);
        upload_scalar(*run.executor, skip, i);
        readbacks.push_back(run.executor->read_values({loss, skip}));
    }
    for (int i = 0; i < 100; ++i) {
        CHECK(readbacks[static_cast<std::size_t>(i)]->wait() == std::vector<double>{0.5 * i, static_cast<double>(i)});
    }
}
