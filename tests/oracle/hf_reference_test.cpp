// The oracle against Hugging Face transformers' LlamaForCausalLM and torch's AdamW. hf_reference.py printed the
// constants (torch 2.15.0, transformers 5.23.0, all in float64) from the same weights and tokens. Both files get these
// from the same linear congruence, which is exact in any language.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/oracle/adamw.h"
#include "tests/oracle/textbook.h"
#include "tests/tiny_model.h"

using namespace coda;
using namespace coda::textbook;

namespace {

class Uniform {
  public:
    explicit Uniform(std::uint32_t seed) : state_(seed) {}
    double operator()() {
        state_ = state_ * 1664525U + 1013904223U;
        return state_ / 4294967296.0;
    }

  private:
    std::uint32_t state_;
};

ModelConfig reference_config(bool tied, bool scaled) {
    ModelConfig config = test::tiny_model();
    config.tie_word_embeddings = tied;
    if (scaled) config.rope_scaling = RopeScaling{8, 1, 4, 32};
    return config;
}

Weights reference_weights(const ModelConfig& config) {
    Uniform draw(7);
    Weights weights;
    for (const auto& [name, shape] : weight_shapes(config)) {
        std::int64_t count = 1;
        for (const std::int64_t extent : shape) count *= extent;
        for (std::int64_t i = 0; i < count; ++i)
            weights[name].push_back(is_norm(name) ? 1 + (draw() - 0.5) : 1.4 * (draw() - 0.5));
    }
    return weights;
}

Batch reference_batch(Uniform& draw, int ignored_every) {
    Batch batch{2, 12, {}, {}, {}, false};
    for (int m = 0; m < 24; ++m) batch.tokens.push_back(static_cast<int>(draw() * 37));
    for (int m = 0; m < 24; ++m) {
        const int target = static_cast<int>(draw() * 37);
        batch.targets.push_back(m % ignored_every == 1 ? -100 : target);
    }
    return batch;
}

/// Two micro-batches with 19 and 12 valid targets.
std::vector<Batch> reference_batches() {
    Uniform draw(11);
    const Batch first = reference_batch(draw, 5);
    return {first, reference_batch(draw, 2)};
}

/// The first micro-batch as documents of 5 and 7 tokens.
Batch reference_documents() {
    Batch batch = reference_batches().front();
    for (int m = 0; m < 24; ++m) batch.document.push_back(m % 12 < 5 ? 0 : 1);
    batch.restart_positions = true;
    return batch;
}

}  // namespace

TEST_CASE("the loss agrees with Hugging Face's LLaMA") {
    struct Case {
        bool tied, scaled;
        double step, documents;
    };
    const std::array<Case, 4> cases = {{{false, false, 4.9137177843614745, 5.132122033446101},
                                        {false, true, 5.239895946325749, 5.32726218958469},
                                        {true, false, 4.489169890490129, 4.9100395302908915},
                                        {true, true, 4.7258270763763965, 4.92239040753598}}};
    for (const Case& c : cases) {
        INFO("tied " << c.tied << ", rope scaling " << c.scaled);
        const ModelConfig config = reference_config(c.tied, c.scaled);
        const Weights weights = reference_weights(config);
        CHECK(loss(config, weights, reference_batches()) == Approx(c.step).epsilon(1e-13));
        CHECK(loss(config, weights, {reference_documents()}) == Approx(c.documents).epsilon(1e-13));
    }
}

TEST_CASE("ten clipped AdamW steps follow Hugging Face's LLaMA under torch's AdamW") {
    struct Step {
        double loss, grad_norm;
    };
    const std::array<Step, 10> steps = {{{4.7258270763763965, 5.024993929397606},
                                         {3.7737003850576873, 2.8386620248262897},
                                         {3.0937037128874594, 1.9765579180994919},
                                         {2.6045477346669297, 1.5951205062214766},
                                         {2.209926128571934, 1.680602480255815},
                                         {1.8990067383811995, 1.6404072655955264},
                                         {1.6521176102317778, 1.9776930109363209},
                                         {1.431856885409071, 1.284463193297938},
                                         {1.2321476998144971, 1.303934833671765},
                                         {1.040490529180956, 0.9899202047291397}}};
    const ModelConfig config = reference_config(true, true);
    Weights weights = reference_weights(config);
    AdamW optimizer({0.9, 0.95, 1e-8, 0.1, 0.5});
    for (std::size_t i = 0; i < steps.size(); ++i) {
        INFO("step " << i + 1);
        const Result result = loss_and_gradients(config, weights, reference_batches());
        CHECK(result.loss == Approx(steps[i].loss).epsilon(1e-11));
        CHECK(optimizer.step(weights, result.gradients, 0.01) == Approx(steps[i].grad_norm).epsilon(1e-11));
    }
}
