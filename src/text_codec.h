// The text of a sample: bytes, or a tokenizer's.
#pragma once

#include <memory>

#include "src/train/sampling.h"

namespace coda {

/// That of --tokenizer; without the flag bytes where the vocabulary is theirs (256), else null. Throws UsageError for
/// the flag in a build without tokenizers, Error naming the file for one that is no tokenizer of this vocabulary.
std::unique_ptr<TextCodec> text_codec(const SampleRequest& request, const ModelConfig& model);

}  // namespace coda
