// The shapes that the Hopper kernels take, known to every build: a machine without a GPU plans for one.
#include "kernels/core/limits.h"
#include "src/train/hopper_executor.h"

namespace coda {

std::optional<std::string> hopper_model_problem(const ModelConfig& model) {
    if (auto problem = limits::head_dim_problem("model.head_dim", model.head_dim)) return problem;
    if (auto problem = limits::width_problem("model.hidden_size", model.hidden_size)) return problem;
    if (auto problem = limits::width_problem("model.intermediate_size", model.intermediate_size)) return problem;
    return limits::layers_problem("model.num_hidden_layers", model.num_hidden_layers);
}

}  // namespace coda
