// A training step of the schedules against the textbook model: what the tests of right and of planted schedules share.
#pragma once

#include "tests/catch.h"
#include "tests/model/harness.h"

namespace coda::test {

struct TextbookCase {
    const char* name;
    bool tied = false, scaled = false, documents = false, restart = false, bias = false, norms = false,
         out_bias = false, mlp_bias = false;
    MlpKind mlp = MlpKind::swiglu;
    bool learned = false;  // positions
    bool layernorm = false;
    bool yarn = false;
    Sizes sizes;
    std::size_t micro_batches = 1;
};

inline ModelConfig model_of(const TextbookCase& c) {
    ModelConfig model = tiny_model();
    model.tie_word_embeddings = c.tied;
    model.attention_bias = c.bias;
    model.qk_norm = c.norms;
    if (c.norms) model.rms_norm_eps = 1e-3;  // large enough that its part of a norm's gradient counts
    model.attention_out_bias = c.out_bias;
    model.mlp = c.mlp;
    if (c.layernorm) model.norm = NormKind::layernorm;
    model.mlp_bias = c.mlp_bias;
    if (c.learned) {
        model.position_embeddings = PositionEmbeddings::learned;
        model.max_position_embeddings = c.sizes.seq_len + 3;  // rows that no token reads have the gradient 0
    }
    if (c.scaled) model.rope_scaling = RopeScaling{8, 1, 4, 40};
    if (c.yarn) model.rope_scaling = test::small_yarn();
    return model;
}

inline std::vector<textbook::Batch> batches_of(const TextbookCase& c, const ModelConfig& model) {
    std::vector<textbook::Batch> batches;
    for (std::size_t i = 0; i < c.micro_batches; ++i) {
        batches.push_back(random_batch(model, c.sizes.batch, c.sizes.seq_len, 100 + i, c.documents));
        batches.back().restart_positions = c.restart;
    }
    // Unequal numbers of valid targets, so that a mean of means would show.
    if (c.micro_batches > 1) std::fill_n(batches.back().targets.begin(), 5, -1);
    return batches;
}

struct Errors {
    double loss, gradient;
};

/// `change` may plant a mistake in the schedules.
template <class Change>
Errors compare(const TextbookCase& c, Precision precision, Change&& change) {
    const ModelConfig model = model_of(c);
    const textbook::Weights weights = textbook::random_weights(model, 7);
    const std::vector<textbook::Batch> batches = batches_of(c, model);
    const textbook::Result truth = textbook::loss_and_gradients(model, weights, batches);

    ModelRun run(model, c.sizes, precision);
    change(run);
    run.start();
    run.set_weights(weights);
    const double loss = run.step(batches);
    return {std::abs(loss - truth.loss) / truth.loss, worst_error(run.gradients(), truth.gradients)};
}
inline Errors compare(const TextbookCase& c, Precision precision) {
    return compare(c, precision, [](ModelRun&) {});
}

template <class T, class Change>
void change_ops(Schedule& schedule, Change&& change) {
    for (Step& step : schedule) {
        if (T* op = std::get_if<T>(&step.op)) change(*op);
    }
}

}  // namespace coda::test
