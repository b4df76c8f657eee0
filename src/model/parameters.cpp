#include "src/model/parameters.h"

namespace coda {

namespace {

ParameterLayout walk(const ModelConfig& model, ParameterPlan plan) {
    ParameterLayout layout;
    layout.embedding = EmbeddingBlock::declare(plan, model);
    for (std::size_t l = 0; l < static_cast<std::size_t>(model.num_hidden_layers); ++l) {
        plan.enter_layer(l);
        layout.layers.push_back(Layer::declare(plan, model));
        plan.leave_layer();
    }
    layout.head = HeadBlock::declare(plan, model, layout.embedding.table);

    layout.matrix_count = plan.matrix_end();
    layout.count = plan.norm_end();
    layout.tensors = plan.tensors();
    layout.matrices = plan.matrices();
    for (const WeightMatrix& matrix : layout.matrices) {
        const PackedTensor& place = matrix.place;
        if (matrix.norm) layout.folds.push_back({place.offset, place.rows, place.cols, matrix.norm->weight.offset});
    }
    for (const HfTensor& tensor : layout.tensors) layout.parameters += tensor.count();
    return layout;
}

}  // namespace

ParameterLayout parameter_layout(const ModelConfig& model) {
    // Norm weights and biases begin where the matrices end, which the first walk finds.
    return walk(model, ParameterPlan(walk(model, ParameterPlan(0)).matrix_count));
}

std::vector<std::size_t> tensors_of(const ParameterLayout& layout, const PackedTensor& matrix) {
    std::vector<std::size_t> numbers;
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        const HfTensor& tensor = layout.tensors[t];
        if (tensor.is_matrix() && tensor.offset >= matrix.offset && tensor.offset < matrix.offset + matrix.count())
            numbers.push_back(t);
    }
    return numbers;
}

}  // namespace coda
