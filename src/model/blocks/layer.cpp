#include "src/model/blocks/layer.h"

namespace coda {

namespace {

BranchEnd end_of(Block& block) {
    return std::visit([](auto& each) { return each.end(); }, block);
}

}  // namespace

Layer::Parameters Layer::declare(ParameterPlan& plan, const ModelConfig& model) {
    Parameters parameters;
    parameters.attention = AttentionBlock::declare(plan, model);
    if (model.mlp == MlpKind::swiglu)
        parameters.mlp = MlpBlock::declare(plan, model);
    else
        parameters.mlp = GeluMlpBlock::declare(plan, model);
    return parameters;
}

Layer::Layer(const Parameters& parameters, const Weights& weights, const ModelShape& shape, Recompute recompute,
             const BlockBuffers& buffers) {
    blocks_.emplace_back(AttentionBlock(parameters.attention, weights, shape, recompute, buffers));
    if (const auto* mlp = std::get_if<MlpBlock::Parameters>(&parameters.mlp))
        blocks_.emplace_back(MlpBlock(*mlp, weights, shape, recompute, buffers));
    else
        blocks_.emplace_back(
            GeluMlpBlock(std::get<GeluMlpBlock::Parameters>(parameters.mlp), weights, shape, recompute, buffers));
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

void Layer::backward(StepList& step, const BatchInputs& batch, View& dx, Beta beta, const BranchEnd& next) {
    for (std::size_t b = blocks_.size(); b-- > 0;) {
        const BranchEnd before = b > 0 ? end_of(blocks_[b - 1]) : next;
        std::visit([&](auto& each) { each.backward(step, batch, dx, beta, before); }, blocks_[b]);
    }
}

const Stream& Layer::out() const {
    return std::visit([](const auto& each) -> const Stream& { return each.out(); }, blocks_.back());
}

BranchEnd Layer::end() { return end_of(blocks_.back()); }

}  // namespace coda
