// The forward pass as a list of blocks (CODA's schedule: norms, residuals, RoPE and SwiGLU live in GEMM epilogues).
#include "src/model/model.h"

namespace coda {

void build_forward(Model& model, StepList& step, Keep keep) {
    step.enter(Phase::forward, -1);
    model.embedding.forward(step, model.batch);
    for (std::size_t l = 0; l < model.layers.size(); ++l) {
        step.enter(Phase::forward, static_cast<int>(l));
        model.layers[l].forward(step, model.batch, model.input_of(l), keep);
    }
}

}  // namespace coda
