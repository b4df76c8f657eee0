#include "src/train/plan_report.h"

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
