// What lies next to the weights of an exported folder, so that transformers 4 and 5, vLLM and llama.cpp's converter
// make the same tokens of a text, and end it at the same ones:
//
//   tokenizer.json         the run's; truncation and padding null. Its TemplateProcessing has the tokens with which a
//                          text begins (text_marks.h), the one way that all readers share
//   tokenizer_config.json  the run's, with class PreTrainedTokenizerFast, which takes tokenizer.json as it is,
//                          add_bos_token as texts begin, and bos and eos where they are absent; without one these, as
//                          texts that tokenizer.json has
//   generation_config.json the run's, with all end tokens of the model; without one bos, these, and the first of them
//                          as pad
//   chat_template.jinja    the run's, also where it was in tokenizer_config.json
//
// special_tokens_map.json and tokenizer.model are the run's.
#pragma once

#include <filesystem>

#include "src/config/config.h"

namespace coda {

/// Completes `folder`, which has the tokenizer's files as copy_tokenizer leaves them, or none. Throws Error naming the
/// file.
void complete_export(const std::filesystem::path& folder, const ModelConfig& model);

}  // namespace coda
