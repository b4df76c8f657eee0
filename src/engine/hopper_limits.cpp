// The configurations that the Hopper kernels take, known to every build: a machine without a GPU plans for one.
#include "kernels/core/limits.h"
#include "kernels/hopper/attention/forward_tile.h"
#include "kernels/ops/attention/scratch.h"
#include "src/engine/hopper_executor.h"

namespace coda {

namespace {

std::optional<std::string> model_problem(const ModelConfig& model) {
    if (auto problem = limits::head_dim_problem("model.head_dim", model.head_dim)) return problem;
    if (auto problem = limits::width_problem("model.hidden_size", model.hidden_size)) return problem;
    if (auto problem = limits::width_problem("model.intermediate_size", model.intermediate_size)) return problem;
    return limits::layers_problem("model.num_hidden_layers", model.num_hidden_layers);
}

std::optional<std::string> forward_problem(const ModelConfig& model, std::int64_t sequences, std::int64_t seq_len) {
    const int queries = model.head_dim == 64 ? hopper::ForwardTile<64>::kQueries : hopper::ForwardTile<128>::kQueries;
    if (auto problem = limits::tokens_problem("training.micro_batch_size x training.seq_len", sequences * seq_len))
        return problem;
    return limits::tiles_problem("training.micro_batch_size x model.num_attention_heads x tiles of training.seq_len",
                                 limits::attention_tiles(sequences, model.num_attention_heads, seq_len, queries));
}

std::optional<std::string> backward_problem(const ModelConfig& model, std::int64_t sequences, std::int64_t seq_len) {
    if (auto problem = limits::heads_problem("model.num_attention_heads", model.num_attention_heads)) return problem;
    const std::int64_t padded = round_up(seq_len, AttentionScratch::kPaddedRows);
    return limits::head_rows_problem(
        "training.micro_batch_size x model.num_attention_heads x training.seq_len in whole tiles",
        sequences * model.num_attention_heads * padded);
}

}  // namespace

std::optional<std::string> hopper_problem(const Config& config, PassSet passes) {
    if (auto problem = model_problem(config.model)) return problem;
    if (passes.has(Pass::decode)) {
        const std::int64_t group = config.model.num_attention_heads / config.model.num_key_value_heads;
        if (auto problem = limits::group_problem("model.num_attention_heads / model.num_key_value_heads", group))
            return problem;
    }
    const TrainingConfig& training = config.training;
    // A prefill is one sequence.
    const bool batches = passes.has(Pass::first) || passes.has(Pass::evaluate);
    const std::int64_t sequences = batches ? training.micro_batch_size : 1;
    if (auto problem = forward_problem(config.model, sequences, training.seq_len)) return problem;
    if (!passes.has(Pass::first)) return std::nullopt;
    return backward_problem(config.model, sequences, training.seq_len);
}

}  // namespace coda
