// What coda_generate does, from its options to its exit code.
#pragma once

#include "src/generate/program/options.h"

namespace coda {

/// The exit code: done, or interrupted. Throws Error, UsageError and NonFiniteError.
int generate(const GenerateOptions& options);

}  // namespace coda
