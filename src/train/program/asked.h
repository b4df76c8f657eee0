// What a command line of coda_train asks for, in the words of what does it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "src/config/command_line.h"
#include "src/engine/cpu_time.h"
#include "src/io/run_tokenizer.h"
#include "src/train/run_options.h"

namespace coda {

/// The passes of everything that is asked for.
PassSet passes_of(const CommandLine& command);

RunOptions run_options(const CommandLine& command);

/// What the samples of a training run follow; null without samples.
std::shared_ptr<const RunPrompts> training_prompts(const CommandLine& command);

/// The tokenizer of the tokens that are read; samples have a codec of their own.
std::optional<RunTokenizer> data_tokenizer(const CommandLine& command);

/// What a CPU would have to do.
std::vector<CpuWork> works_of(const CommandLine& command, const Schedules& schedules);

}  // namespace coda
