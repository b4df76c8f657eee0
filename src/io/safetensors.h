// Reads and writes the safetensors format (https://github.com/huggingface/safetensors).
//
//   n (8 bytes, little-endian) | n bytes of JSON | data
//   {"__metadata__": {KEY: STRING}, NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//
// Offsets count bytes from the start of the data; the tensors cover the data exactly, without holes or overlap.
// Elements are row-major and little-endian. A checkpoint is one such file, or several with an index that names the file
// of each tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coda {

/// Fills `out` with a file's bytes from `offset` on.
using BytesAt = std::function<void(std::int64_t offset, std::span<std::byte> out)>;

/// A tensor of a safetensors file, which it reads from.
struct StoredTensor {
    std::string name;
    std::string file;        // for messages
    std::string_view dtype;  // as the format spells it: "F32", "BF16", ...
    std::vector<std::int64_t> shape;
    std::int64_t count = 0;             // elements
    std::int64_t begin = 0, bytes = 0;  // of the file
    std::shared_ptr<const BytesAt> source;

    /// Elements [first, first + out.size()) in row-major order. Reads F64, F32, F16 and BF16; F64 rounds when read as
    /// float. Throws Error for any other dtype, for a range outside the tensor, and where the file cannot be read.
    template <class Real>  // float or double
    void read(std::int64_t first, std::span<Real> out) const;
};

/// "[2, 3]"
std::string shape_text(const std::vector<std::int64_t>& shape);

/// The tensors of a safetensors file of `bytes` bytes, in the order of their data. Throws Error naming `file`, and the
/// tensor if there is one, for anything the format does not allow.
std::vector<StoredTensor> parse_safetensors(BytesAt source, std::int64_t bytes, const std::string& file);
/// The tensors of a file in memory, which must outlive them.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes, const std::string& file);

/// The tensors of a checkpoint folder by name, read where they lie: model.safetensors or, if there is no such file,
/// model.safetensors.index.json with its shards.
class SafetensorsFolder {
  public:
    /// Throws Error naming the file for a missing or malformed file, a tensor in two shards, and an index that
    /// disagrees with its shards.
    explicit SafetensorsFolder(const std::filesystem::path& folder);

    const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

  private:
    void add_file(const std::filesystem::path& path);

    std::map<std::string, StoredTensor> tensors_;
};

/// A tensor to be written; an element takes whole bytes.
struct TensorSpec {
    std::string name;
    std::vector<std::int64_t> shape;
    std::string_view dtype = "F32";
};

/// Supplies the bytes of row `row` of tensor `index` of the list being written: the elements along its last dimension.
/// Asked for in order, row after row and tensor after tensor.
using RowSource = std::function<void(std::size_t index, std::int64_t row, std::span<std::byte> out)>;

/// A row as F32, or as BF16 rounded to nearest even.
void store_floats(std::string_view dtype, std::span<const float> row, std::span<std::byte> out);

/// Writes one file, one row at a time. Throws Error naming `path`; the file then does not exist, or still has its
/// former contents.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorSpec> tensors, const RowSource& source);

/// Writes model.safetensors into `folder` or, if the tensors take more than `max_shard_bytes`, shards
/// model-00001-of-0000N.safetensors and model.safetensors.index.json. A tensor is never split: one that is larger than
/// max_shard_bytes gets a shard of its own.
void write_safetensors_folder(const std::filesystem::path& folder, std::span<const TensorSpec> tensors,
                              std::int64_t max_shard_bytes, const RowSource& source);

}  // namespace coda
