// What coda_tokenize does: texts to shards, and shards to text.
#pragma once

#include "src/core/errors.h"
#include "src/tokenize/options.h"

namespace coda {

/// Encodes the inputs into shards. Throws Error, and then no shard has been written or replaced.
void tokenize(const TokenizeOptions& options);

/// The same of conversations: packed into rows, with masks.
void tokenize_conversations(const TokenizeOptions& options);

/// Writes the text of shards. Throws Error; a file that --out names is then as it was.
void decode(const TokenizeOptions& options);

}  // namespace coda
