// quantization_config of a Hugging Face folder's config.json: which quantized weights this program reads.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kernels/math/int4.h"

namespace coda {

/// The end of every refusal of quantized weights: what to do.
inline constexpr const char* kTakeFloats = "; take the model's folder in bf16, fp16 or fp32";

/// Throws Error naming `file` and the key unless the weights are symmetric 4-bit integers in groups of kInt4Group
/// columns, as compressed-tensors ("pack-quantized") or GPTQ store them, or `quantization` is null.
void check_quantization(const nlohmann::json& quantization, const std::string& file);

/// The quantization_config of a folder whose layers' matrices are stored as compressed-tensors' "pack-quantized". The
/// head and the modules `floats` are named as not rounded.
nlohmann::json packed_quantization(const std::vector<std::string>& floats);

}  // namespace coda
