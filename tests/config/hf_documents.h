// config.json of published models, shaped as transformers 4 and 5 write them.
#pragma once

#include <nlohmann/json.hpp>

namespace coda::test {

inline nlohmann::json llama3_scaling() {
    return {{"rope_type", "llama3"},
            {"factor", 32.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}};
}

/// As transformers 4 writes Llama 3.2 1B.
inline nlohmann::json llama32() {
    nlohmann::json hf = nlohmann::json::parse(R"({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
        "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 128256
    })");
    hf["rope_scaling"] = llama3_scaling();
    return hf;
}

/// As transformers 5 writes it: all rotary parameters in one object, dtype without "torch_".
inline nlohmann::json llama32_v5() {
    nlohmann::json hf = llama32();
    hf["rope_parameters"] = llama3_scaling();
    hf["rope_parameters"]["rope_theta"] = 500000.0;
    hf["dtype"] = hf["torch_dtype"];
    hf["pad_token_id"] = nullptr;
    for (const char* key : {"rope_scaling", "rope_theta", "torch_dtype"}) hf.erase(key);
    return hf;
}

/// As transformers 4 writes Qwen2.5 1.5B.
inline nlohmann::json qwen2() {
    return nlohmann::json::parse(R"({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02,
        "intermediate_size": 8960, "max_position_embeddings": 131072, "max_window_layers": 28, "model_type": "qwen2",
        "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
        "vocab_size": 151936
    })");
}

/// As transformers 4 writes Qwen3 0.6B: heads of 128, of which 16 are wider than the stream.
inline nlohmann::json qwen3() {
    return nlohmann::json::parse(R"({
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
        "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960,
        "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
        "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936
    })");
}

/// As Llama 2 7B: no GQA, no head_dim, no rope_theta.
inline nlohmann::json llama2() {
    return nlohmann::json::parse(R"({
        "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
        "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": null,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false,
        "torch_dtype": "float16", "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000
    })");
}

}  // namespace coda::test
