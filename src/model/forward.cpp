// The forward pass as a list of blocks (CODA's schedule: norms, residuals, RoPE and SwiGLU live in GEMM epilogues).
#include "src/model/model.h"

namespace coda {

namespace {

/// The embedding and the first `layers` layers; returns the stream that leaves them.
const Stream& forward_through(Model& model, StepList& step, std::size_t layers) {
    step.enter(Phase::forward, -1);
    const Stream* stream = &model.embedding.forward(step, model.batch);
    for (std::size_t l = 0; l < layers; ++l) {
        step.enter(Phase::forward, static_cast<int>(l));
        stream = &model.layers[l].forward(step, model.batch, *stream);
    }
    return *stream;
}

}  // namespace

void build_forward(Model& model, StepList& step) { forward_through(model, step, model.layers.size()); }

void build_cache_fill(Model& model, StepList& step) {
    const std::size_t last = model.layers.size() - 1;
    const Stream& in = forward_through(model, step, last);
    step.enter(Phase::forward, static_cast<int>(last));
    model.layers[last].fill_cache(step, model.batch, in);
}

}  // namespace coda
