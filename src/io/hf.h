// Reads and writes Hugging Face checkpoint folders of LlamaForCausalLM: config.json and safetensors.
//
// The folder has every matrix as transformers stores it; the flat segments have them packed (src/model/parameters.h).
// Both directions copy one row at a time between a mapped or written file and the segment: there is no second copy of
// the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "kernels/core/dtype.h"
#include "src/config/config.h"
#include "src/model/parameters.h"

namespace coda {

inline constexpr std::int64_t kMaxShardBytes = 5'000'000'000;  // as transformers' save_pretrained

/// config.json of the folder. Throws Error naming the file when it is missing or not a JSON object.
nlohmann::json read_hf_config(const std::filesystem::path& folder);

/// Fills `master` (layout.count elements) from the folder's safetensors (F32, BF16, F16 or F64); padding becomes 0.
/// Throws one Error that names all missing, unexpected and wrongly shaped tensors (the first ten of each); `master` is
/// then as it was. Ignores the buffers "rotary_emb.inv_freq" of old checkpoints, and the lm_head.weight of a tied model
/// if it equals the embedding. If it does not, the model is not tied, which is an error.
void import_weights(const std::filesystem::path& folder, const ParameterLayout& layout, std::span<float> master);
void import_weights(const std::filesystem::path& folder, const ParameterLayout& layout, std::span<double> master);

/// Throws Error when export_weights would refuse `folder`: it exists and is not an empty folder.
void check_export_folder(const std::filesystem::path& folder);

/// Writes config.json and the weights as `dtype` (f32: the same bits; bf16: rounded to nearest even), sharded when they
/// take more than max_shard_bytes. transformers loads the folder unchanged. It is written as "<folder>.partial" and
/// renamed, so it is complete wherever it exists; on error the partial folder is removed.
void export_weights(const std::filesystem::path& folder, const ModelConfig& model, const ParameterLayout& layout,
                    std::span<const float> master, DType dtype, std::int64_t max_shard_bytes = kMaxShardBytes);

}  // namespace coda
