// The backward pass as a list of blocks. dx is one buffer, updated in place: weight gradients that read one of its
// values come before the op that writes the next value. In storage, dz and dqkv carry the rstd of the norm before them,
// so that weight gradients read the residual stream where the forward pass left it.
#include "src/model/model.h"

namespace coda {

void build_backward(Model& model, StepList& step, Beta beta) {
    for (std::size_t l = model.layers.size(); l-- > 0;) {
        step.enter(Phase::backward, static_cast<int>(l));
        const BranchEnd next = l > 0 ? model.layers[l - 1].end() : BranchEnd{};
        model.layers[l].backward(step, model.batch, model.dx, beta, next);
    }
    step.enter(Phase::backward, -1);
    // A tied head's weight gradient has already been written into the embedding's; an untied one starts from zero.
    if (model.tied) {
        model.embedding.continue_gradient(model.head.matrix().gradient());
    } else if (beta == Beta::overwrite) {
        model.embedding.zero_gradient(step);
    }
    model.embedding.backward(step, model.batch, model.dx, beta);
}

}  // namespace coda
