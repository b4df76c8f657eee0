// A team whose ranks are threads of one process, on a CPU or on one GPU.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/engine/team.h"

namespace coda {

/// Runs body(team) for each of `ranks` ranks, on its own thread with `threads` OpenMP threads. After all have ended,
/// throws what the first failing rank threw. The calls of the other ranks throw Error, naming that rank.
void run_thread_team(int ranks, int threads, const std::function<void(Team&)>& body);

}  // namespace coda
