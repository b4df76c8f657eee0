// Multiple-choice evaluation shards of llm.c (HellaSwag, MMLU): a context, some completions, and which one is right.
//
//   header    1024 bytes, 256 int32: {20240522, 1, examples, bytes of the longest example}; the rest is unused
//   example   uint16, little-endian: 65535, bytes of the example (these two words included), index of the example,
//             index of the right completion, completions, then as {length, tokens} the context and every completion
//
// Token ids are uint16, as the GPT-2 tokenizer gives them: a shard only suits a model of the tokenizer that made it. A
// file is read and checked as a whole when it is opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/io/files.h"

namespace coda {

struct EvaluationExample {
    std::int64_t label = 0;  // index of the right completion
    std::vector<std::int32_t> context;
    std::vector<std::vector<std::int32_t>> completions;
};

/// Where each example of the shard in `file` begins, in bytes. Throws Error naming `name` and the example for: a file
/// that is no such shard or is cut off, no examples, an index or length that does not fit, fewer than two completions,
/// a label outside of them, an empty context or completion, an id >= vocab, a completion of more than seq_len tokens.
std::vector<std::int64_t> index_evaluation_shard(std::span<const std::byte> file, const std::string& name,
                                                 std::int64_t vocab, std::int64_t seq_len);

class EvaluationShard {
  public:
    /// Throws Error as index_evaluation_shard does, and when the file cannot be read.
    EvaluationShard(const std::filesystem::path& path, std::int64_t vocab, std::int64_t seq_len);

    /// The file's name without folder and extension.
    const std::string& name() const { return name_; }
    const std::filesystem::path& path() const { return path_; }
    std::int64_t examples() const { return static_cast<std::int64_t>(first_byte_.size()); }
    EvaluationExample example(std::int64_t index) const;

  private:
    std::filesystem::path path_;
    std::string name_;
    std::string file_;
    std::vector<std::int64_t> first_byte_;
};

/// The shards that the patterns name (see expand_paths). Also throws Error when two have the same name.
std::vector<EvaluationShard> open_evaluation_shards(const std::vector<std::string>& patterns, std::int64_t vocab,
                                                    std::int64_t seq_len);

}  // namespace coda
