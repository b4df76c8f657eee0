// Which build this is.
#pragma once

#include <string>

namespace coda {

/// "coda_train 0.1.0 (1a2b3c4d, hopper, Release, GNU 12.2.0)"; the commit ends in "+" where the tree had changes.
std::string build_id();

}  // namespace coda
