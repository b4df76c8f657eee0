// Converts text to tokens and back: by bytes, or by a tokenizer.
#pragma once

#include <memory>
#include <string>

#include "src/config/config.h"
#include "src/text/codec.h"

namespace coda {

/// The codec of data.tokenizer (with `resume`, the run's copy if the file is gone). Without it: bytes if the vocabulary
/// is theirs (256), else null. Throws UsageError for a tokenizer in a build without them, and Error naming the file if
/// it is not a tokenizer of this vocabulary; only added tokens may lie beyond it.
std::unique_ptr<TextCodec> text_codec(const Config& config, bool resume);

/// The codec of `tokenizer`, a tokenizer.json of a model with `vocab` tokens. Throws as text_codec.
std::unique_ptr<TextCodec> open_text_codec(const std::string& tokenizer, std::int64_t vocab);

}  // namespace coda
