#include "src/io/file_tensors.h"

#include <algorithm>
#include <optional>

#include "kernels/core/error.h"

namespace coda {

namespace {

/// The modules of a family's files under their LLaMA names.
struct Module {
    std::string_view llama, own;
    bool transposed = false;
};

struct Naming {
    std::string_view prefix;          // of all names but the head's
    std::string_view layers;          // what stands before a layer's number
    std::span<const Module> modules;  // empty: LLaMA's own names
    std::span<const char* const> buffers;
};

constexpr std::string_view kLayers = "model.layers.";

constexpr const char* kLlamaBuffers[] = {"rotary_emb.inv_freq"};  // of old folders
constexpr Naming kLlama{.prefix = "", .layers = kLayers, .modules = {}, .buffers = kLlamaBuffers};

constexpr Module kGpt2Modules[] = {
    {"model.embed_tokens", "wte"},
    {"model.embed_positions", "wpe"},
    {"model.norm", "ln_f"},
    {"input_layernorm", "ln_1"},
    {"self_attn.q_proj", "attn.c_attn", true},
    {"self_attn.k_proj", "attn.c_attn", true},
    {"self_attn.v_proj", "attn.c_attn", true},
    {"self_attn.o_proj", "attn.c_proj", true},
    {"post_attention_layernorm", "ln_2"},
    {"mlp.up_proj", "mlp.c_fc", true},
    {"mlp.down_proj", "mlp.c_proj", true},
};
constexpr const char* kGpt2Buffers[] = {".attn.bias", ".attn.masked_bias"};  // the causal mask, of old folders
constexpr Naming kGpt2{.prefix = "transformer.", .layers = "h.", .modules = kGpt2Modules, .buffers = kGpt2Buffers};

/// The files' name of a tensor of the layout, and whether they have it transposed.
std::pair<std::string, bool> named(const Naming& naming, const HfTensor& tensor) {
    if (naming.modules.empty()) return {tensor.name, false};
    std::string_view rest = tensor.name;
    std::string own(naming.prefix);
    if (rest.starts_with(kLayers)) {
        rest.remove_prefix(kLayers.size());
        const std::size_t number = rest.find('.') + 1;
        own += text(naming.layers, rest.substr(0, number));
        rest.remove_prefix(number);
    }
    const std::size_t end = rest.rfind('.');  // of ".weight" or ".bias"
    for (const Module& module : naming.modules) {
        if (rest.substr(0, end) == module.llama)
            return {text(own, module.own, rest.substr(end)), module.transposed && tensor.is_matrix()};
    }
    return {tensor.name, false};
}

}  // namespace

std::vector<std::int64_t> FileTensor::shape() const {
    if (!matrix) return {rows * cols};
    return transposed ? std::vector{cols, rows} : std::vector{rows, cols};
}

FileTensors file_tensors(const ModelConfig& model, const ParameterLayout& layout) {
    const Naming& naming = model.norm == NormKind::layernorm ? kGpt2 : kLlama;
    FileTensors files{.tensors = {}, .places = {}, .prefix = naming.prefix, .buffers = naming.buffers};
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        const HfTensor& tensor = layout.tensors[t];
        const auto [name, transposed] = named(naming, tensor);
        // The parts of a tensor follow one another in the layout.
        if (files.tensors.empty() || files.tensors.back().name != name)
            files.tensors.push_back(
                {.name = name, .matrix = tensor.is_matrix(), .transposed = transposed, .cols = tensor.cols});
        FileTensor& file = files.tensors.back();
        files.places.push_back({files.tensors.size() - 1, file.rows});
        file.parts.push_back(t);
        file.rows += tensor.rows;
    }
    return files;
}

}  // namespace coda
