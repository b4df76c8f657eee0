// A model as its blocks in their order, and the passes over them.
#pragma once

#include <vector>

#include "src/model/blocks/embedding.h"
#include "src/model/blocks/head.h"
#include "src/model/blocks/layer.h"
#include "src/model/parameters.h"
#include "src/model/schedule_options.h"

namespace coda {

/// Everything that one schedule is built from. Views are values: each schedule is built from a copy, and counts the
/// values of a buffer from its own start.
struct Model {
    BatchInputs batch;
    EmbeddingBlock embedding;
    std::vector<Layer> layers;
    HeadBlock head;
    View dx;    // (M, d) gradient of the residual stream, updated in place
    bool tied;  // the head's matrix is the embedding's

    const Stream& input_of(std::size_t layer) const { return layer == 0 ? embedding.out() : layers[layer - 1].out(); }
    const Stream& out() const { return input_of(layers.size()); }

    /// For a pass that no backward pass follows.
    void keep_nothing() {
        for (Layer& layer : layers) layer.keep_nothing();
    }
    /// Cuts the forward pass down to the first `rows` tokens.
    void keep_rows(std::int64_t rows);
};

/// What tokens are looked up in. A tied embedding's working copy carries the final norm's weight, so it is the master
/// that is read or, in a plan without master weights, `instead`.
View embedding_rows(const ParameterLayout& layout, const Weights& weights, const View& master, bool has_master,
                    const View& instead);

/// The blocks for micro-batches of `shape`, with buffers of their own. `rows`: what tokens are looked up in.
Model make_model(const ParameterLayout& layout, const ModelShape& shape, const ScheduleOptions& options,
                 const BatchInputs& batch, const Weights& weights, const View& rows, const BlockBuffers& buffers);

/// forward.cpp: tokens to the input of the final norm.
void build_forward(Model& model, StepList& step);
/// forward.cpp: tokens to the keys and values of every layer.
void build_cache_fill(Model& model, StepList& step);

/// backward.cpp: from dx, the gradient of that input, to every gradient but the head's.
void build_backward(Model& model, StepList& step, Beta beta);

}  // namespace coda
