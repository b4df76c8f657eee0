// The tokenizer of a run, data.tokenizer, and the copy of its files that the run's folder keeps:
//
//   <run>/tokenizer/tokenizer.json         the file that data.tokenizer names, under whatever name
//   <run>/tokenizer/tokenizer_config.json  likewise generation_config.json, special_tokens_map.json,
//                                          chat_template.jinja and tokenizer.model: those that lie next to it, if it is
//                                          itself named tokenizer.json
//
// The run's log and its checkpoints hold record().
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "src/config/config.h"

namespace coda {

struct RunTokenizer {
    std::filesystem::path file;   // the configured tokenizer.json, or the run's copy of it
    std::string sha256;           // of `file`
    std::int64_t vocab_size = 0;  // the largest id + 1

    nlohmann::json record() const;  // {"file", "sha256"}
};

/// The file that data.tokenizer names, or, with `resume` if that file is gone, the copy in output.directory. Nothing
/// without the key. Throws Error naming the key when there is neither.
std::optional<std::filesystem::path> tokenizer_file(const Config& config, bool resume);

/// Reads and checks that file. Throws Error naming the key and the file when it is not a tokenizer.json, or what lies
/// next to it cannot be read, and UsageError
/// when its vocabulary has ids that are not below model.vocab_size. Added tokens may lie beyond: such a token is an
/// error when a text needs it.
std::optional<RunTokenizer> open_tokenizer(const Config& config, bool resume);

/// Compares with the state of the checkpoint that a run continues from. Throws UsageError when that has another
/// tokenizer. A checkpoint without a tokenizer agrees with any.
void check_tokenizer(const std::optional<RunTokenizer>& tokenizer, const nlohmann::json& saved);

/// Copies the tokenizer's files, those named above, into `folder`, which has none of them. Throws Error naming file and
/// reason.
void copy_tokenizer(const RunTokenizer& tokenizer, const std::filesystem::path& folder);

/// Copies the tokenizer's files into the folder `run`, unless the copy there is of the same tokenizer.json. The copy is
/// complete wherever it exists: it is written aside, synced and renamed. Throws Error naming file and reason.
void keep_tokenizer(const RunTokenizer& tokenizer, const std::filesystem::path& run);

}  // namespace coda
