// The passes of generation as schedules: what they hold, their memory and their hazards; and a decoder made only from a
// configuration.
#include <algorithm>

#include "kernels/cost.h"
#include "kernels/math/int4.h"
#include "src/engine/hopper_executor.h"
#include "src/engine/plan_report.h"
#include "src/generate/make_decoder.h"
#include "src/generate/score.h"
#include "src/generate/step_bytes.h"
#include "tests/catch.h"
#include "tests/io/scratch_folder.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;
using Catch::Contains;

namespace {

Schedules generation_of(const ModelConfig& model, const GenerationShape& shape, const Precision& precision,
                        PassSet passes = passes_of(Mode::generate)) {
    ScheduleOptions options;
    options.precision = precision;
    options.seq_len = shape.context;
    options.micro_batch_size = 1;
    options.generation = shape;
    return build_schedules(model, parameter_layout(model), options, passes);
}

std::vector<std::string> ops_of(const Schedule& schedule) {
    std::vector<std::string> names;
    for (const Step& step : schedule) names.emplace_back(name_of(step.op));
    return names;
}

std::int64_t placed(const Schedules& schedules, const MemoryPlan& plan, MemorySegment segment) {
    std::int64_t bytes = 0;
    for (std::size_t b = 0; b < schedules.buffers.size(); ++b) {
        const Buffer& buffer = schedules.buffers.all()[b];
        if (buffer.segment == segment && plan.offset[b] >= 0) bytes += buffer.bytes;
    }
    return bytes;
}

}  // namespace

TEST_CASE("prompts are padded to 128 2^k rows, and to the context") {
    using Lengths = std::vector<std::int64_t>;
    CHECK(prefill_lengths(1) == Lengths{1});
    CHECK(prefill_lengths(128) == Lengths{128});
    CHECK(prefill_lengths(129) == Lengths{128, 129});
    CHECK(prefill_lengths(1024) == Lengths{128, 256, 512, 1024});
    CHECK(prefill_lengths(std::int64_t{128} << 15).size() == kPrefillPasses);
    CHECK_THAT(message_of([] { prefill_lengths((std::int64_t{128} << 15) + 1); }),
               Contains("4194305 positions") && Contains("4194304"));
}

TEST_CASE("the lists of generation are the forward pass over the newest tokens, and over a prompt up to its cache") {
    const Schedules schedules = generation_of(tiny_model(), {.batch = 3, .context = 200}, kFloat32);
    std::vector<std::string> decode = {"Embed"}, prefill = {"Embed"};
    for (int layer = 0; layer < 2; ++layer) {
        for (const char* op : {"LinearRope", "DecodeAttention", "LinearResidualRms", "FinishRstd", "LinearSwiglu",
                               "LinearResidualRms", "FinishRstd"})
            decode.emplace_back(op);
        for (const char* op : {"LinearRope", "StoreKeyValue", "Attention", "LinearResidualRms", "FinishRstd",
                               "LinearSwiglu", "LinearResidualRms", "FinishRstd"})
            prefill.emplace_back(op);
    }
    decode.insert(decode.end(), {"Linear", "ChooseToken"});
    prefill.resize(prefill.size() - 6);  // nothing reads what follows the last layer's keys and values
    CHECK(ops_of(schedules.decode) == decode);
    REQUIRE(schedules.prefill.size() == 2);
    for (const auto& [index, rows] : {std::pair{0, 128}, std::pair{1, 200}}) {
        const Schedule& schedule = schedules.prefill[static_cast<std::size_t>(index)];
        CHECK(ops_of(schedule) == prefill);
        CHECK(std::get<Embed>(schedule[0].op).tokens.cols == rows);
        CHECK(std::get<Attention>(schedule[3].op).seq_len == rows);
        CHECK(&schedules[prefill_pass(static_cast<std::size_t>(index))] == &schedule);
    }
    CHECK(schedules.passes() == std::vector{Pass::decode, prefill_pass(0), prefill_pass(1)});
    CHECK(!schedules.has(prefill_pass(2)));
}

TEST_CASE("the passes of generation are checked for hazards") {
    Schedules schedules = generation_of(tiny_model(), {.batch = 2, .context = 200}, kMixedBf16);
    plan_and_check(schedules);
    SECTION("attention before the projection that makes its operands") {
        std::swap(schedules.decode[1], schedules.decode[2]);
        CHECK_THAT(message_of([&] { plan_and_check(schedules); }), Contains("the decode schedule has"));
    }
    SECTION("the next token chosen before its logits") {
        std::swap(schedules.decode.back(), schedules.decode[schedules.decode.size() - 2]);
        CHECK_THAT(message_of([&] { plan_and_check(schedules); }), Contains("'choose': operand logits means value 1"));
    }
    SECTION("a layer that stores into the cache of another") {
        const auto cache_of = [&](std::size_t step) -> View& {
            return std::get<StoreKeyValue>(schedules.prefill[1][step].op).keys;
        };
        REQUIRE(cache_of(2).offset < cache_of(10).offset);
        cache_of(10).offset = cache_of(2).offset;
        CHECK_THAT(message_of([&] { plan_and_check(schedules); }),
                   Contains("the prefill of 200 schedule has") && Contains("of 'key cache', but finds value 1"));
    }
}

TEST_CASE("a plan has a cache where it generates, and nothing of training") {
    ModelConfig model = tiny_model();
    model.tie_word_embeddings = GENERATE(false, true);
    const GenerationShape shape{.batch = 3, .context = 50};
    const Schedules schedules = generation_of(model, shape, kMixedBf16);
    const MemoryPlan plan = plan_and_check(schedules);
    const HostViews& host = schedules.host;
    CHECK(placed(schedules, plan, MemorySegment::caches) == 2 * (2 * 3 * 2 * 50) * 8 * 2);  // layers S Hk C, hd, bf16
    for (const View& view : {host.master, host.gradient, host.m, host.targets, host.embedded, host.losses})
        CHECK(!schedules.uses(view));
    // A tied table is there twice: folded for the head, plain for look-up.
    CHECK(schedules.uses(host.embedding) == model.tie_word_embeddings);
    // Several rows of a sequence share its cache.
    GenerationShape guessing = shape;
    guessing.rows_each = 4;
    const Schedules more_rows = generation_of(model, guessing, kMixedBf16);
    const MemoryPlan their_plan = plan_and_check(more_rows);
    CHECK(placed(more_rows, their_plan, MemorySegment::caches) == placed(schedules, plan, MemorySegment::caches));
    CHECK(more_rows.host.sequences.token.cols == 12);
    CHECK(step_bytes(more_rows.decode).weights == step_bytes(schedules.decode).weights);
    const Schedules with_master = generation_of(model, shape, kMixedBf16, kAllPasses | passes_of(Mode::generate));
    plan_and_check(with_master);
    CHECK(!with_master.uses(with_master.host.embedding));
    for (const Mode mode : {Mode::train, Mode::evaluate}) {
        ScheduleOptions options;
        options.seq_len = 6;
        options.micro_batch_size = 2;
        const Schedules other = build_schedules(model, parameter_layout(model), options, passes_of(mode));
        CHECK(placed(other, plan_and_check(other), MemorySegment::caches) == 0);
    }
}

TEST_CASE("a plan keeps 4-bit integers, and their matrices only while an op reads them") {
    ModelConfig model = tiny_int4_model();
    model.tie_word_embeddings = GENERATE(false, true);
    const bool head = GENERATE(false, true);
    const ParameterLayout layout = parameter_layout(model);
    GenerationShape shape{.batch = 3, .context = 50};
    const Schedules plain = generation_of(model, shape, kMixedBf16);
    for (std::size_t i = 0; i < layout.matrices.size(); ++i)
        if (layout.matrices[i].layer >= 0 || (head && !layout.tied() && i == layout.head.matrix))
            shape.int4.push_back(i);
    const Schedules schedules = generation_of(model, shape, kMixedBf16);
    const MemoryPlan plan = plan_and_check(schedules);
    double packed = 0, largest = 0, unpacked_bytes = 0;
    for (const std::size_t i : shape.int4) {
        const PackedTensor& place = layout.matrices[i].place;
        packed += static_cast<double>(place.count() / (kInt4Rows * kInt4Group) * kInt4UnitWords * 4);
        unpacked_bytes += static_cast<double>(2 * place.count());
        largest = std::max(largest, static_cast<double>(2 * place.count()));
    }
    for (const Schedule* schedule : {&schedules.decode, &schedules.prefill.back()})
        for (std::size_t i = 0; i + 1 < schedule->size(); ++i) {
            const auto* unpack = std::get_if<UnpackInt4>(&(*schedule)[i].op);
            if (unpack == nullptr) continue;
            bool read = false;  // by the step that follows
            for_each_operand((*schedule)[i + 1].op, [&](const char*, const View& view, Access access) {
                read = read || (access == Access::in && view.buffer == unpack->working.buffer &&
                                view.version == unpack->working.version);
            });
            CHECK(read);
            const bool after_norm = (*schedule)[i].name == "qkv_weights" || (*schedule)[i].name == "gate_up_weights" ||
                                    (*schedule)[i].layer < 0;
            CHECK(static_cast<bool>(unpack->gamma) == after_norm);
        }
    CHECK(std::ranges::count(ops_of(schedules.decode), "UnpackInt4") == std::ssize(shape.int4));
    CHECK(!schedules.uses(schedules.host.working));
    const double saved = step_bytes(plain.decode).weights - step_bytes(schedules.decode).weights;
    CHECK(saved == unpacked_bytes - packed);
    // The weights in memory shrink by as much, but for the weights of norms and the alignment of buffers.
    const MemoryPlan plain_plan = plan_and_check(plain);
    const auto weights_of = [](const Schedules& of, const MemoryPlan& in) {
        return static_cast<double>(placed(of, in, MemorySegment::weights));
    };
    CHECK(weights_of(plain, plain_plan) - weights_of(schedules, plan) > 0.9 * saved - 4.0 * 128 * 5);
    CHECK(plan.transient_bytes >= static_cast<std::int64_t>(largest));
    CHECK(static_cast<double>(plan.transient_bytes - plain_plan.transient_bytes) < largest + 4096);
}

TEST_CASE("every op of generation has the scratch that it needs") {
    const Schedules schedules = generation_of(tiny_model(), {.batch = 3, .context = 600}, kMixedBf16);
    for (const Step& step : schedules.decode) {
        if (const auto* op = std::get_if<DecodeAttention>(&step.op)) {
            CHECK(op->scratch_bytes() == 3 * 4 * 3 * (8 + 2) * 4);
            CHECK(op->scratch.bytes() >= op->scratch_bytes());
        }
    }
}

TEST_CASE("a decode step costs every weight once, and the cache at a full context") {
    const ModelConfig model = llama1b_untied();
    const Schedules schedules = generation_of(model, {.batch = 1, .context = 8192}, kMixedBf16);
    double bytes = 0, cache = 0;
    for (const Step& step : schedules.decode) bytes += cost(step.op).bytes;
    cache = static_cast<double>(schedules.host.cache.keys.bytes() + schedules.host.cache.values.bytes());
    CHECK(cache == 32.0 * 1024 * 8192);  // 32 KiB a position
    const ParameterLayout layout = parameter_layout(model);
    // All matrices but the embedding, of which one row is read; norms are folded.
    const double weights = 2.0 * static_cast<double>(layout.matrix_count - layout.embedding_table().count());
    CHECK(bytes > weights + cache);
    CHECK(bytes < 1.01 * (weights + cache));
    CHECK(step_bytes(schedules.decode).weights == weights);
    CHECK(step_bytes(schedules.decode).position == 32.0 * 1024);
    const MemoryPlan plan = plan_and_check(schedules);
    CHECK_THAT(print_schedule(schedules),
               Contains("# decode: ") && Contains("# prefill of 8192: ") && Contains("DecodeAttention"));
    CHECK_THAT(print_plan(Config{}, layout, schedules, plan),
               Contains("of the pass decode; ") && Contains("of the pass prefill of 128; ") && Contains("caches"));
    CHECK_THAT(message_of([&] { require_generation_fit(schedules, plan, 1 << 20, "the GPU"); }),
               Contains("the GPU has 1.00 MiB to give") &&
                   Contains("the cache of 1 sequences of 8192 positions takes 256.00 MiB") &&
                   Contains("a shorter context"));
}

TEST_CASE("the GPU's limits of generation are named") {
    Config config;
    config.model = llama1b_untied();
    CHECK(!hopper_problem(config, passes_of(Mode::generate)));
    config.model.num_key_value_heads = 1;
    CHECK(!hopper_problem(config, passes_of(Mode::evaluate)));
    CHECK_THAT(hopper_problem(config, passes_of(Mode::generate)).value_or(""),
               Contains("up to 16 query heads per key/value head") && Contains("num_key_value_heads is 32"));
}

// Sums of fp32 in two orders; a wrong weight, token or position shows at 1e-2.
TEST_CASE("a decoder made from a configuration has the losses of its evaluation") {
    const ScratchFolder folder;
    Config config;
    config.model = tiny_model();
    config.model.initializer_range = 0.4;
    config.model.tie_word_embeddings = GENERATE(false, true);
    config.training.seq_len = 40;
    config.training.micro_batch_size = 1;
    config.device = DeviceChoice::cpu;
    std::FILE* said = std::fopen((folder.path() / "said").c_str(), "w");
    Console console(said);
    const WeightsSource source(config, {.err = said}, false, {}, console);
    std::vector<std::int32_t> tokens(41);
    for (std::size_t t = 0; t < tokens.size(); ++t) tokens[t] = static_cast<std::int32_t>(7 * t * t % 37);
    Session session(config, passes_of(Mode::evaluate), false, console);
    source.load(session);
    session.feed(
        {.tokens = {tokens.begin(), tokens.end() - 1}, .targets = {tokens.begin() + 1, tokens.end()}, .valid = 40});
    session.set_alpha(40);
    session.run(Pass::evaluate);
    const double expected = download_scalar(session.executor(), session.host().val_loss);

    const std::unique_ptr<BatchDecoder> decoder =
        make_decoder(config, {.batch = 2, .context = 64}, source, {}, console);
    CHECK(decoder->batch() == 2);
    CHECK(decoder->context() == 64);
    CHECK(std::abs(score(*decoder, tokens).loss - expected) < 1e-5);
    CHECK_THAT(message_of([&] { make_decoder(config, {.batch = 17, .context = 64}, source, {}, console); }),
               Contains("17 sequences side by side: it takes 1 to 16"));
    std::fclose(said);
}
