// The text of a sample: bytes, or a tokenizer's.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/train/sampling.h"

namespace coda {

/// That of the file `tokenizer`, else of data.tokenizer (with `resume` the run's copy where the file is gone); without
/// either bytes where the vocabulary is theirs (256), else null. Throws UsageError for a tokenizer in a build without
/// them, Error naming the file for one that is no tokenizer of this vocabulary.
std::unique_ptr<TextCodec> text_codec(const std::optional<std::string>& tokenizer, const Config& config, bool resume);

}  // namespace coda
