#include "src/core/errors.h"

namespace coda {

ExitCode exit_code_of(const std::exception& error) {
    if (dynamic_cast<const UsageError*>(&error)) return kExitUsage;
    if (dynamic_cast<const NonFiniteError*>(&error)) return kExitNonFinite;
    if (dynamic_cast<const InterruptedError*>(&error)) return kExitInterrupted;
    return kExitRuntime;
}

}  // namespace coda
