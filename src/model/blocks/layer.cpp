#include "src/model/blocks/layer.h"

namespace coda {

namespace {

Activation& output_gradient_of(Block& block) {
    return std::visit([](auto& each) -> Activation& { return each.output_gradient(); }, block);
}

}  // namespace

Layer::Layer(const Parameters& parameters, const Weights& weights, const ModelShape& shape, Recompute recompute,
             const BlockBuffers& buffers) {
    blocks_.emplace_back(AttentionBlock(parameters.attention, weights, shape, recompute, buffers));
    blocks_.emplace_back(MlpBlock(parameters.mlp, weights, shape, recompute, buffers));
}

void Layer::keep_nothing() {
    for (Block& block : blocks_) std::visit([](auto& each) { each.keep_nothing(); }, block);
}

void Layer::keep_rows(std::int64_t rows) {
    for (Block& block : blocks_) std::visit([&](auto& each) { each.keep_rows(rows); }, block);
}

const Stream& Layer::forward(StepList& step, const BatchInputs& batch, const Stream& in) {
    const Stream* stream = &in;
    for (Block& block : blocks_)
        stream = std::visit([&](auto& each) { return &each.forward(step, batch, *stream); }, block);
    return *stream;
}

void Layer::backward(StepList& step, const BatchInputs& batch, View& dx, Beta beta, Activation* next) {
    for (std::size_t b = blocks_.size(); b-- > 0;) {
        Activation* before = b > 0 ? &output_gradient_of(blocks_[b - 1]) : next;
        std::visit([&](auto& each) { each.backward(step, batch, dx, beta, before); }, blocks_[b]);
    }
}

const Stream& Layer::out() const {
    return std::visit([](const auto& each) -> const Stream& { return each.out(); }, blocks_.back());
}

Activation& Layer::output_gradient() { return output_gradient_of(blocks_.back()); }

}  // namespace coda
