// A team whose ranks are threads of one process, on a CPU.
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

/// Runs body(team) for every rank of `ranks`, each on a thread of its own with `threads` OpenMP threads. When all have
/// ended, throws what the first rank to fail threw; the others see Error, naming it.
void run_thread_team(int ranks, int threads, const std::function<void(Team&)>& body);

}  // namespace coda
