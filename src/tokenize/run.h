// What coda_tokenize does: texts to shards, and shards to text.
#pragma once

#include "kernels/core/error.h"
#include "src/tokenize/options.h"

namespace coda {

/// Ctrl-C, SIGTERM or SIGHUP came: nothing was written.
class InterruptedError : public Error {
  public:
    using Error::Error;
};

/// Encodes the inputs into shards. Throws Error, and then no shard has been written or replaced.
void tokenize(const TokenizeOptions& options);

/// Writes the text of shards. Throws Error; a file that --out names is then as it was.
void decode(const TokenizeOptions& options);

}  // namespace coda
