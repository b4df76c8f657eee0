// Which of the ways to run the steps of generation a decoder takes.
#pragma once

#include <functional>
#include <memory>

#include "src/core/console.h"
#include "src/core/decoder_options.h"
#include "src/engine/executor.h"

namespace coda {

/// The executor's kernel of many steps per launch, or passes, of which `run` executes Pass::decode. Where the choice is
/// automatic and the kernel does not take the model, a line on the console says why. Throws Error where the kernel is
/// asked for and cannot do it. Executor and schedules must outlive the result.
std::unique_ptr<DecodeLaunches> choose_launches(Executor& executor, const Schedules& schedules,
                                                const std::function<void(Pass)>& run, const DecoderOptions& options,
                                                Console& console);

}  // namespace coda
