// A plan holds what its mode runs, and gives the bits of the plan of a training run.
#include "src/config/json_file.h"

#include <nlohmann/json.hpp>
#include "src/config/shipped.h"
#include "src/model/schedules.h"
#include "tests/catch.h"
#include "tests/model/pass_decoder.h"

using namespace coda;
using namespace coda::test;

namespace {

/// Tied ones have biases and LayerNorm, and the others norms of q and k, which passes without master weights read from
/// a copy of their own.
ModelConfig tied_or_not(bool tied) {
    ModelConfig model = tiny_model();
    model.tie_word_embeddings = tied;
    model.attention_bias = model.attention_out_bias = model.mlp_bias = tied;
    model.qk_norm = !tied;
    if (tied) {
        model.mlp = MlpKind::gelu_exact;
        model.norm = NormKind::layernorm;
    }
    return model;
}

ModelRun started(const ModelConfig& model, Sizes sizes, PassSet passes, const Precision& precision) {
    sizes.passes = passes;
    ModelRun run(model, sizes, precision);
    run.start();
    run.set_weights(textbook::random_weights(model, 7));
    return run;
}

std::int64_t placed_bytes(const Schedules& schedules, const MemoryPlan& plan, MemorySegment segment) {
    std::int64_t bytes = 0;
    for (std::size_t b = 0; b < schedules.buffers.size(); ++b) {
        const Buffer& buffer = schedules.buffers.all()[b];
        if (buffer.segment == segment && buffer.lifetime == Lifetime::persistent && plan.offset[b] >= 0) {
            bytes += buffer.bytes;
        }
    }
    return bytes;
}

}  // namespace

TEST_CASE("an evaluation without master weights has the losses of one within training, bit for bit") {
    const ModelConfig model = tied_or_not(GENERATE(false, true));
    const Precision precision = GENERATE(kFloat32, kMixedBf16);
    const Sizes sizes{.batch = 2, .seq_len = 9, .chunks = 2, .document_mask = true};
    ModelRun whole = started(model, sizes, kAllPasses, precision);
    ModelRun alone = started(model, sizes, passes_of(Mode::evaluate), precision);
    CHECK(!alone.schedules.uses(alone.schedules.host.master));
    for (const std::uint64_t seed : {1, 2, 3}) {
        const textbook::Batch batch = random_batch(model, sizes.batch, sizes.seq_len, seed, true);
        CHECK(alone.evaluate(batch) == whole.evaluate(batch));
        CHECK(alone.elements(alone.schedules.host.losses) == whole.elements(whole.schedules.host.losses));
    }
}

TEST_CASE("generation without master weights has the logits of generation within training, bit for bit") {
    const ModelConfig model = tied_or_not(GENERATE(false, true));
    const Precision precision = GENERATE(kFloat32, kMixedBf16);
    const Sizes sizes{.generation = {.batch = 1, .context = 12}};
    const PassSet generation = passes_of(Mode::generate);
    ModelRun whole = started(model, sizes, kAllPasses | generation, precision);
    ModelRun alone = started(model, sizes, generation, precision);
    CHECK(!alone.schedules.uses(alone.schedules.host.master));
    const auto decoder = pass_decoder(whole), decoder_alone = pass_decoder(alone);
    std::vector<std::int32_t> tokens;
    for (std::int32_t next = 0; next < 10; ++next) {
        tokens.push_back(7 * next % 37);
        whole.step({random_batch(model, 2, 6, static_cast<std::uint64_t>(next))});  // leaves its own values behind
        for (BatchDecoder* each : {decoder.get(), decoder_alone.get()}) {
            each->start(0, {.prompt = tokens, .choice = {}, .max_tokens = 1, .end_tokens = {}});
            each->advance(1);
        }
        CHECK(decoder->logits(0) == decoder_alone->logits(0));
    }
}

TEST_CASE("a plan has memory for what its mode touches and for nothing else") {
    const ModelConfig model = tied_or_not(GENERATE(false, true));
    const auto built = [&](Mode mode) {
        ScheduleOptions options;
        options.precision = kMixedBf16;
        options.seq_len = 6;
        options.micro_batch_size = 2;
        return build_schedules(model, parameter_layout(model), options, passes_of(mode));
    };
    const Schedules training = built(Mode::train);
    for (const View& view : {training.host.master, training.host.gradient, training.host.m, training.host.v}) {
        CHECK(training.uses(view));
    }
    CHECK(!training.uses(training.host.embedded));
    const Schedules evaluation = built(Mode::evaluate);
    const MemoryPlan plan = plan_and_check(evaluation);
    const HostViews& host = evaluation.host;
    for (const View& view : {host.master, host.gradient, host.m, host.v, host.lr, host.loss}) {
        CHECK(!evaluation.uses(view));
        CHECK(plan.offset[static_cast<std::size_t>(view.buffer)] == -1);
    }
    const ParameterLayout layout = parameter_layout(model);
    const std::int64_t vectors = layout.count - layout.matrix_count;  // in fp32 too
    // The case that is tied has LayerNorm.
    std::int64_t derived = 0;
    for (const WeightMatrix& matrix : layout.matrices) {
        if (matrix.centred) derived += 2 * matrix.place.count();
        if (matrix.centred || (matrix.norm && matrix.norm->bias)) derived += 4 * matrix.place.rows;
    }
    CHECK((derived > 0) == model.tie_word_embeddings);
    CHECK(placed_bytes(evaluation, plan, MemorySegment::weights) == 2 * layout.count + 4 * vectors + derived);
    CHECK(placed_bytes(evaluation, plan, MemorySegment::gradients) == 0);
    CHECK(evaluation.uses(host.embedded) == model.tie_word_embeddings);
    CHECK(evaluation.uses(host.targets));
    CHECK(built(Mode::export_).all().empty());
}

TEST_CASE("evaluating a 1B model takes its weights in bf16, the activations that are alive, and a tenth more") {
    const std::string name = GENERATE("llama1b", "llama1b_untied");
    const Config config = parse_config(read_json_file(find_config(name + ".json")), name);
    const ParameterLayout layout = parameter_layout(config.model);
    const Schedules schedules =
        build_schedules(config.model, layout, schedule_options(config, kMixedBf16), passes_of(Mode::evaluate));
    const MemoryPlan plan = plan_and_check(schedules);
    INFO(name << ": arena " << plan.arena_bytes() << ", weights " << 2 * layout.parameters << ", alive "
              << plan.live_bytes);
    CHECK(static_cast<double>(plan.arena_bytes()) <=
          1.1 * static_cast<double>(2 * layout.parameters + plan.live_bytes));
}

TEST_CASE("every op of every pass has the scratch that it needs") {
    const Precision precision = GENERATE(kFloat32, kMixedBf16);
    ModelRun run(tied_or_not(false), {.batch = 2, .seq_len = 9, .chunks = 2}, precision);
    std::int64_t checked = 0;
    for (const Pass pass : run.schedules.passes()) {
        for (const Step& step : run.schedules[pass]) {
            std::visit(
                [&]<class T>(const T& op) {
                    if constexpr (T::traits.has(Trait::scratch_bytes)) {
                        INFO(name_of(run.schedules, pass) << ": " << step.name);
                        CHECK(op.scratch.bytes() >= op.scratch_bytes());
                        ++checked;
                    }
                },
                step.op);
        }
    }
    CHECK(checked > 0);
}
