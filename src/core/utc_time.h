// The time of day, for logs.
#pragma once

#include <string>

namespace coda {

/// Now, as "2026-05-04T12:00:00Z".
std::string utc_now();

}  // namespace coda
