// A Hugging Face tokenizer.json, read strictly: BPE, of bytes or of characters.
//
//   normalizer     null, NFC, Prepend, Replace of a String, a Sequence of these
//   pre_tokenizer  null, Split, Digits, Metaspace, ByteLevel (the last, without add_prefix_space), a Sequence of these
//   model          BPE without dropout, continuing_subword_prefix or end_of_word_suffix; byte_fallback, unk_token,
//                  fuse_unk and ignore_merges either way; merges as "a b" or ["a", "b"]
//   added_tokens   all; those that only tokenizer_config.json has too
//   post_processor ByteLevel, TemplateProcessing or a Sequence of these; not run: the beginning and end of a document
//                  are marked as the command line says
//   decoder        ByteLevel; Metaspace; Replace of a String, ByteFallback, Fuse, Strip of the beginning, a Sequence of
//                  these. Null stands for ByteLevel where that is the pre-tokenizer.
//   truncation, padding  not read, as `transformers` does not obey them
//
// Everything else is refused by name, since the tokens would differ from the tokens of the tokenizer's own library.
#pragma once

#include <string>

#include "src/tokenize/tokenizer_spec.h"

namespace coda {

/// `config` is the content of the tokenizer_config.json that belongs to the tokenizer, "" without one: its
/// added_tokens_decoder has tokens that the file lacks, and its flags win. Throws Error naming `file` and the key or
/// part that is malformed or not supported.
TokenizerSpec parse_tokenizer(const std::string& content, const std::string& file, const std::string& config = "");

/// parse_tokenizer of a file's content and, where the file is named tokenizer.json, of the tokenizer_config.json next
/// to it.
TokenizerSpec read_tokenizer(const std::string& path);

}  // namespace coda
