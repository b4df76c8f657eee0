// The shapes that the Hopper kernels take, known to every build: a machine without a GPU plans for one.
#include "kernels/core/error.h"
#include "kernels/ops/optimizer/norm_fold.h"
#include "src/train/hopper_executor.h"

namespace coda {

std::optional<std::string> hopper_model_problem(const ModelConfig& model) {
    if (model.head_dim != 64 && model.head_dim != 128)
        return text("the GPU's attention has heads of 64 or 128, and model.head_dim is ", model.head_dim);
    if (model.hidden_size % 8 != 0)
        return text("the GPU's kernels need a model.hidden_size that is a multiple of 8, and it is ",
                    model.hidden_size);
    if (model.intermediate_size % 8 != 0)
        return text("the GPU's kernels need a model.intermediate_size that is a multiple of 8, and it is ",
                    model.intermediate_size);
    const std::int64_t folds = 2 * model.num_hidden_layers + 1;  // two a layer, and the head: ParameterLayout.folds
    if (folds > kMaxFolds)
        return text("the GPU's AdamW takes models of up to ", (kMaxFolds - 1) / 2,
                    " layers, and model.num_hidden_layers is ", model.num_hidden_layers);
    return std::nullopt;
}

}  // namespace coda
