#include "src/engine/plan_report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/catch.h"

using namespace coda;

namespace {

Config small_config() {
    return parse_config(nlohmann::json::parse(R"({
        "model": {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128},
        "data": {"train": "none.bin"},
        "training": {"seq_len": 32, "micro_batch_size": 2, "steps": 1}
    })"),
                        "small");
}

double flops_of(const Config& config) {
    const ParameterLayout layout = parameter_layout(config.model);
    return step_flops(config, build_schedules(config.model, layout, schedule_options(config, kMixedBf16)));
}

}  // namespace

// 6 N a token for the N weights of products (no embedding, no norms), and 3 (2 B T^2 H hd) for causal attention.
TEST_CASE("the model's FLOPs of a step are the textbook's") {
    Config config = small_config();
    const double tokens = 64, attention = 2.0 * 2 * 32 * 32 * 4 * 16;
    const double layer = 48 * (4 + 2 * 2) * 16 + 4 * 16 * 48 + 3 * 48 * 80;
    const double expected = 6 * (3 * layer + 48 * 128) * tokens + 3 * 3 * attention;
    REQUIRE(flops_of(config) == expected);

    config.training.lm_head_chunks = 4;
    REQUIRE(flops_of(config) == expected);
    config.training.recompute = Recompute::mlp;
    REQUIRE(flops_of(config) == expected);
    config.model.tie_word_embeddings = true;
    REQUIRE(flops_of(config) == expected);
    config.training.grad_accumulation_steps = 5;
    REQUIRE(flops_of(config) == 5 * expected);
}

TEST_CASE("a plan says how much of a step's FLOPs have FP8 operands, forward, dgrad and wgrad each counted") {
    const auto share_of = [](const PrecisionConfig& precision) {
        Config config = small_config();
        config.precision = precision;
        const ParameterLayout layout = parameter_layout(config.model);
        const Schedules schedules = build_schedules(config.model, layout, schedule_options(config, kMixedBf16));
        const std::string plan = print_plan(config, layout, schedules, plan_memory(schedules.buffers, schedules.all()));
        const auto at = plan.find("FP8 operands in ");
        return at == std::string::npos ? "" : plan.substr(at, plan.find('%', at) - at);
    };
    const auto line_of = [](double share) {
        char line[64];
        std::snprintf(line, sizeof line, "FP8 operands in %.1f", share);
        return std::string(line);
    };
    const double layers = 3 * (48 * (4 + 2 * 2) * 16 + 4 * 16 * 48 + 3 * 48 * 80), head = 48 * 128;
    const double all = 6 * 64 * (layers + head) + 3 * 3 * (2.0 * 2 * 32 * 32 * 4 * 16);
    CHECK(share_of(PrecisionConfig{}) == "");
    CHECK(share_of(PrecisionConfig::fp8()) == line_of(100 * 6 * 64 * layers / all));
    CHECK(share_of({.has_fp8 = true, .bf16_first_layers = 1}) == line_of(100 * 6 * 64 * layers * 2 / 3 / all));
}
