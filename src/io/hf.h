// Reads and writes Hugging Face checkpoint folders: config.json and safetensors.
//
// The folder has every matrix as transformers stores it (src/io/file_tensors.h); the flat segments have them packed
// (src/model/parameters.h). Both directions copy one row at a time, and turn one transposed matrix after the other: the
// model is never in memory as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/config/export_dtype.h"
#include "src/io/file_tensors.h"
#include "src/io/int4_matrix.h"
#include "src/io/run_tokenizer.h"
#include "src/io/safetensors.h"
#include "src/model/master_weights.h"

namespace coda {

inline constexpr std::int64_t kMaxShardBytes = 5'000'000'000;  // as transformers' save_pretrained

/// The weights of a folder's safetensors (F32, BF16, F16 or F64, or 4-bit integers as Int4Matrix reads them); padding
/// is 0. `layout`, that of `model`, must outlive it. Of one thread.
class HfWeights : public MasterWeights {
  public:
    /// Throws one Error that names all missing, unexpected and wrongly shaped tensors (the first ten of each). Ignores
    /// the buffers of old checkpoints, and the lm_head.weight of a tied model if it equals the embedding. If it does
    /// not, the model is not tied, which is an error.
    HfWeights(const std::filesystem::path& folder, const ModelConfig& model, const ParameterLayout& layout);

    void read(std::int64_t first, std::span<float> out) const override;
    void read_row(std::size_t tensor, std::int64_t row, std::span<float> out) const override;

    bool is_int4(std::size_t tensor) const override { return int4_[tensor].has_value(); }
    void read_int4_row(std::size_t tensor, std::int64_t row, std::span<std::uint32_t> words,
                       std::span<Bf16> scales) const override;

    /// Matrices of 4-bit integers among them.
    std::size_t int4_matrices() const;

  private:
    /// Elements of row `row` of the layout's tensor number `tensor`, from `column` on.
    void read_part(std::size_t tensor, std::int64_t row, std::int64_t column, std::span<float> out) const;

    /// A transposed matrix of the files as the layout has it, (rows, cols).
    std::span<const float> turned(std::size_t file) const;

    SafetensorsFolder folder_;
    const ParameterLayout& layout_;
    FileTensors files_;
    std::vector<const StoredTensor*> stored_;      // of the files' tensors; null where it is quantized
    std::vector<std::optional<Int4Matrix>> int4_;  // of the layout's tensors; absent where it is not
    mutable Int4Reader int4_reader_;
    mutable std::optional<std::size_t> turned_file_;  // whose elements are in turned_
    mutable std::vector<float> turned_;
};

/// Throws Error when export_weights would refuse `folder`: it exists and is not an empty folder.
void check_export_folder(const std::filesystem::path& folder);

/// A note on the layers' matrices that an export as int4 keeps in bf16; empty where it rounds them all. Throws Error
/// where it can round none, or where the files have them transposed.
std::string int4_export_note(const ModelConfig& model, const ParameterLayout& layout);

/// Writes config.json and the weights as `dtype`, sharded when they take more than max_shard_bytes, copies
/// `tokenizer`'s files and completes them (export_files.h). transformers loads the folder unchanged. It is written as
/// "<folder>.partial" and renamed, so it is complete wherever it exists; on error the partial folder is removed. int4
/// keeps a matrix in bf16 where its columns do not divide into groups, and config.json names it.
void export_weights(const std::filesystem::path& folder, const ModelConfig& model, const ParameterLayout& layout,
                    const MasterWeights& master, ExportDtype dtype, std::int64_t max_shard_bytes = kMaxShardBytes,
                    const std::optional<RunTokenizer>& tokenizer = {});

}  // namespace coda
