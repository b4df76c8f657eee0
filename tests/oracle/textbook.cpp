#include "tests/oracle/textbook.h"

#include <cmath>
#include <numbers>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tests/oracle/tape.h"
#include "tests/oracle/textbook_model.h"

namespace coda::textbook {
namespace {

template <class... Parts>
void require(bool condition, const Parts&... parts) {
    if (condition) return;
    std::ostringstream message;
    (message << ... << parts);
    throw std::invalid_argument(message.str());
}

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
}

void check_weights(const ModelConfig& config, const Weights& weights) {
    const auto shapes = weight_shapes(config);
    for (const auto& [name, shape] : shapes) {
        const auto found = weights.find(name);
        require(found != weights.end(), "textbook: weight ", name, " is missing");
        require(std::cmp_equal(found->second.size(), element_count(shape)), "textbook: weight ", name, " has ",
                found->second.size(), " elements, its shape has ", element_count(shape));
    }
    for (const auto& entry : weights)
        require(shapes.contains(entry.first), "textbook: the model has no weight ", entry.first);
}

void check_batch(const ModelConfig& config, const Batch& batch) {
    const std::int64_t rows = batch.batch * batch.seq_len;
    require(std::cmp_equal(batch.tokens.size(), rows), "textbook: ", batch.tokens.size(), " tokens in a batch of ",
            rows);
    require(std::cmp_equal(batch.targets.size(), rows), "textbook: ", batch.targets.size(), " targets in a batch of ",
            rows);
    require(batch.document.empty() || std::cmp_equal(batch.document.size(), rows), "textbook: ", batch.document.size(),
            " document numbers in a batch of ", rows);
    std::set<int> ended;
    for (std::size_t row = 1; row < batch.document.size(); ++row) {
        if (row % static_cast<std::size_t>(batch.seq_len) == 0) {
            ended.clear();
        } else if (batch.document[row] != batch.document[row - 1]) {
            ended.insert(batch.document[row - 1]);
            require(!ended.contains(batch.document[row]), "textbook: document ", batch.document[row],
                    " appears twice in one sequence, again at row ", row);
        }
    }
    for (const int token : batch.tokens)
        require(token >= 0 && token < config.vocab_size, "textbook: token ", token, ", vocabulary ", config.vocab_size);
    for (const int target : batch.targets)
        require(target < config.vocab_size, "textbook: target ", target, ", vocabulary ", config.vocab_size);
}

void check_step(const ModelConfig& config, const Weights& weights, const std::vector<Batch>& micro_batches) {
    check_weights(config, weights);
    for (const Batch& batch : micro_batches) check_batch(config, batch);
    require(valid_targets(micro_batches) > 0, "textbook: no valid target in the step");
}

}  // namespace

std::int64_t head_dim(const ModelConfig& config) {
    return config.head_dim != 0 ? config.head_dim : config.hidden_size / config.num_attention_heads;
}

std::int64_t kv_heads(const ModelConfig& config) {
    return config.num_key_value_heads != 0 ? config.num_key_value_heads : config.num_attention_heads;
}

std::string layer_weight(std::int64_t layer, const std::string& module) {
    return "model.layers." + std::to_string(layer) + "." + module + ".weight";
}

std::string layer_bias(std::int64_t layer, const std::string& module) {
    return "model.layers." + std::to_string(layer) + "." + module + ".bias";
}

std::map<std::string, std::vector<std::int64_t>> weight_shapes(const ModelConfig& config) {
    const std::int64_t d = config.hidden_size;
    const std::int64_t f = config.intermediate_size;
    const std::int64_t q_width = config.num_attention_heads * head_dim(config);
    const std::int64_t kv_width = kv_heads(config) * head_dim(config);
    std::map<std::string, std::vector<std::int64_t>> shapes = {{"model.embed_tokens.weight", {config.vocab_size, d}},
                                                               {"model.norm.weight", {d}}};
    if (config.position_embeddings == PositionEmbeddings::learned)
        shapes["model.embed_positions.weight"] = {config.max_position_embeddings, d};
    if (config.norm == NormKind::layernorm) shapes["model.norm.bias"] = {d};
    if (!config.tie_word_embeddings) shapes["lm_head.weight"] = {config.vocab_size, d};
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        shapes[layer_weight(layer, "input_layernorm")] = {d};
        shapes[layer_weight(layer, "self_attn.q_proj")] = {q_width, d};
        shapes[layer_weight(layer, "self_attn.k_proj")] = {kv_width, d};
        shapes[layer_weight(layer, "self_attn.v_proj")] = {kv_width, d};
        shapes[layer_weight(layer, "self_attn.o_proj")] = {d, q_width};
        shapes[layer_weight(layer, "post_attention_layernorm")] = {d};
        if (config.mlp == MlpKind::swiglu) shapes[layer_weight(layer, "mlp.gate_proj")] = {f, d};
        shapes[layer_weight(layer, "mlp.up_proj")] = {f, d};
        shapes[layer_weight(layer, "mlp.down_proj")] = {d, f};
        if (config.qk_norm) {
            shapes[layer_weight(layer, "self_attn.q_norm")] = {head_dim(config)};
            shapes[layer_weight(layer, "self_attn.k_norm")] = {head_dim(config)};
        }
        if (config.norm == NormKind::layernorm)
            for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
                shapes[layer_bias(layer, norm)] = {d};
        if (config.attention_out_bias) shapes[layer_bias(layer, "self_attn.o_proj")] = {d};
        if (config.mlp_bias) {
            shapes[layer_bias(layer, "mlp.up_proj")] = {f};
            shapes[layer_bias(layer, "mlp.down_proj")] = {d};
        }
        if (!config.attention_bias) continue;
        shapes[layer_bias(layer, "self_attn.q_proj")] = {q_width};
        shapes[layer_bias(layer, "self_attn.k_proj")] = {kv_width};
        shapes[layer_bias(layer, "self_attn.v_proj")] = {kv_width};
    }
    return shapes;
}

bool is_norm(const std::string& name) { return name.ends_with("norm.weight"); }
bool is_bias(const std::string& name) { return name.ends_with(".bias"); }

Weights random_weights(const ModelConfig& config, std::uint64_t seed, double gain) {
    std::mt19937_64 bits(seed);
    std::normal_distribution<double> normal;
    Weights weights;
    for (const auto& [name, shape] : weight_shapes(config)) {
        const double mean = is_norm(name) ? 1 : 0;
        const double deviation = is_norm(name)   ? 0.3
                                 : is_bias(name) ? 1
                                                 : gain / std::sqrt(static_cast<double>(shape.back()));
        std::vector<double>& values = weights[name];
        for (std::int64_t i = 0; i < element_count(shape); ++i) values.push_back(mean + deviation * normal(bits));
    }
    return weights;
}

namespace {

/// Yarn as in arXiv 2309.00071, section 3.2 ("NTK-by-parts"), its ramp over the numbers of pairs.
double yarn_frequency(const ModelConfig& config, double frequency, double pair) {
    const RopeScaling& scaling = *config.rope_scaling;
    // Pair i turns L theta^(-2i / width) / 2 pi times in L positions, so this is the i that turns `times` times.
    const auto pair_of = [&](double times) {
        const double width = static_cast<double>(head_dim(config));
        const double context = static_cast<double>(scaling.original_max_position_embeddings);
        return width / 2 * std::log(context / (2 * std::numbers::pi * times)) / std::log(config.rope_theta);
    };
    double first = pair_of(scaling.beta_fast), last = pair_of(scaling.beta_slow);
    if (scaling.truncate) first = std::floor(first), last = std::ceil(last);
    if (first < 0) first = 0;
    if (last > static_cast<double>(head_dim(config) - 1)) last = static_cast<double>(head_dim(config) - 1);
    const double slowed = pair <= first ? 0 : pair >= last ? 1 : (pair - first) / (last - first);
    return slowed * frequency / scaling.factor + (1 - slowed) * frequency;
}

}  // namespace

double attention_factor(const ModelConfig& config) {
    if (!config.rope_scaling || config.rope_scaling->type != RopeType::yarn) return 1;
    const RopeScaling& scaling = *config.rope_scaling;
    if (scaling.attention_factor) return *scaling.attention_factor;
    const double growth = std::log(scaling.factor) / 10;
    if (scaling.mscale.value_or(0) == 0 || scaling.mscale_all_dim.value_or(0) == 0) return 1 + growth;
    return (1 + *scaling.mscale * growth) / (1 + *scaling.mscale_all_dim * growth);
}

std::vector<double> inverse_frequencies(const ModelConfig& config) {
    const std::int64_t width = head_dim(config);
    std::vector<double> frequencies;
    for (std::int64_t i = 0; i < width; i += 2) {
        double frequency = 1 / std::pow(config.rope_theta, static_cast<double>(i) / static_cast<double>(width));
        if (config.rope_scaling && config.rope_scaling->type == RopeType::linear) {
            frequency /= config.rope_scaling->factor;
        } else if (config.rope_scaling && config.rope_scaling->type == RopeType::yarn) {
            frequency = yarn_frequency(config, frequency, static_cast<double>(i) / 2);
        } else if (config.rope_scaling) {
            const RopeScaling& scaling = *config.rope_scaling;
            const auto context = static_cast<double>(scaling.original_max_position_embeddings);
            const double wavelength = 2 * std::numbers::pi / frequency;
            if (wavelength > context / scaling.low_freq_factor) {
                frequency /= scaling.factor;
            } else if (wavelength >= context / scaling.high_freq_factor) {
                const double smooth = (context / wavelength - scaling.low_freq_factor) /
                                      (scaling.high_freq_factor - scaling.low_freq_factor);
                frequency = (1 - smooth) * frequency / scaling.factor + smooth * frequency;
            }
        }
        frequencies.push_back(frequency);
    }
    return frequencies;
}

std::vector<std::int64_t> positions(const Batch& batch) {
    std::vector<std::int64_t> result;
    for (std::int64_t m = 0; m < batch.batch * batch.seq_len; ++m) {
        const auto row = static_cast<std::size_t>(m);
        const bool sequence_starts = m % batch.seq_len == 0;
        const bool document_starts = batch.restart_positions && !batch.document.empty() && !sequence_starts &&
                                     batch.document[row] != batch.document[row - 1];
        result.push_back(sequence_starts || document_starts ? 0 : result.back() + 1);
    }
    return result;
}

std::vector<std::int64_t> visible_rows(const Batch& batch, std::int64_t query, std::int64_t window) {
    std::vector<std::int64_t> rows;
    for (std::int64_t key = query / batch.seq_len * batch.seq_len; key <= query; ++key)
        if (batch.document.empty() ||
            batch.document[static_cast<std::size_t>(key)] == batch.document[static_cast<std::size_t>(query)])
            rows.push_back(key);
    while (window > 0 && static_cast<std::int64_t>(rows.size()) > window) rows.erase(rows.begin());
    return rows;
}

std::int64_t valid_targets(const std::vector<Batch>& micro_batches) {
    std::int64_t count = 0;
    for (const Batch& batch : micro_batches)
        for (const int target : batch.targets) count += target >= 0 ? 1 : 0;
    return count;
}

double loss(const ModelConfig& config, const Weights& weights, const std::vector<Batch>& micro_batches) {
    check_step(config, weights, micro_batches);
    return model_loss<double>(config, weights, micro_batches);
}

Result loss_and_gradients(const ModelConfig& config, const Weights& weights, const std::vector<Batch>& micro_batches) {
    check_step(config, weights, micro_batches);
    Tape tape;
    Parameters<Variable> parameters;
    for (const auto& [name, values] : weights)
        for (const double value : values) parameters[name].push_back(tape.input(value));

    const Variable output = model_loss(config, parameters, micro_batches);
    const std::vector<double> adjoints = tape.adjoints(output);

    Result result{output.value(), {}};
    for (const auto& [name, variables] : parameters)
        for (const Variable& variable : variables) result.gradients[name].push_back(adjoints[variable.node()]);
    return result;
}

std::vector<double> logits(const ModelConfig& config, const Weights& weights, const Batch& batch) {
    check_weights(config, weights);
    check_batch(config, batch);
    return model_logits<double>(config, weights, batch).data;
}

}  // namespace coda::textbook
