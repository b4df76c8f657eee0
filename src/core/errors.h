// Exceptions that end the program, by exit code: 0 done, 1 run-time error, 2 usage, 3 non-finite, 130 interrupted.
#pragma once

#include <exception>
#include <string>

#include "kernels/core/error.h"

namespace coda {

enum ExitCode : int {
    kExitDone = 0,
    kExitRuntime = 1,        // any other Error: data, weights, files, device
    kExitUsage = 2,          // UsageError: bad command line or config
    kExitNonFinite = 3,      // NonFiniteError
    kExitInterrupted = 130,  // InterruptedError, or a result that was cut short
};

/// A bad command line or config. The message names the key or flag.
class UsageError : public Error {
  public:
    using Error::Error;
};

/// Training stopped on a non-finite loss or gradient norm.
class NonFiniteError : public Error {
  public:
    using Error::Error;
};

/// Ctrl-C, SIGTERM or SIGHUP came, and nothing is left of what was begun.
class InterruptedError : public Error {
  public:
    using Error::Error;
};

/// Another rank is gone, so no call of the team can succeed.
class LostRankError : public Error {
  public:
    using Error::Error;
};

/// Marks an error that every rank of a team throws alike: only the first rank prints it (src/engine/ranks.h).
struct AgreedError {
    virtual ~AgreedError() = default;
};
template <class Base>
struct Agreed : Base, AgreedError {
    using Base::Base;
};

/// The exit code of an exception's type.
ExitCode exit_code_of(const std::exception& error);

}  // namespace coda
