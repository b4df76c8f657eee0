// What the modes of coda_tokenize that read text have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/io/text_marks.h"
#include "src/tokenize/options.h"
#include "src/tokenize/tokenizer.h"

namespace coda {

/// The tokens of --bos or --eos, which for "auto" are `automatic`. Throws UsageError for a token that the tokenizer
/// does not have.
std::vector<std::uint32_t> marks(const Tokenizer& tokenizer, const char* flag, const std::string& given,
                                 const std::vector<std::int32_t>& automatic);

/// What the tokenizer's files say of first and last tokens. The tokenizer must outlive it.
TokenizerFiles files_of(const Tokenizer& tokenizer);

/// The files that the patterns name, "-" among them. Throws UsageError where that comes twice.
std::vector<std::string> expand_inputs(const std::vector<std::string>& patterns);

/// Bytes of all inputs; 0 when one has no known size.
std::int64_t total_bytes(const std::vector<std::string>& inputs);

/// Throws Error where the tokenizer has ids beyond --vocab.
void require_vocab(const Tokenizer& tokenizer, const TokenizeOptions& options);

std::size_t thread_count(const TokenizeOptions& options);

/// Text in flight: room for some segments per thread.
std::int64_t bytes_in_work(std::size_t threads);

/// A line on stderr.
void say(const std::string& line);

}  // namespace coda
