// Which build this is.
#pragma once

#include <string>

namespace coda {

/// HEAD at the build, 12 digits, and "-dirty" where tracked files had changes; "no git" outside a repository.
std::string build_commit();

/// "coda_train 0.1.0 (1a2b3c4d5e6f, hopper, Release, GNU 12.2.0)", with build_commit().
std::string build_id();

}  // namespace coda
