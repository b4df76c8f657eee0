// What a run is asked for, apart from its configuration.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/core/decoder_options.h"
#include "src/engine/team.h"
#include "src/engine/weights_source.h"

namespace coda {

struct RunPrompts;  // src/train/run_samples.h

/// What --resume may find otherwise than the checkpoint has it, and continue.
struct ResumePermissions {
    bool other_device = false;  // another kind of device or precision: other bits from there on
    bool changed_data = false;  // data files of the same name with other contents
};

struct RunOptions {
    bool resume = false;                                // weights and moments of output.directory's newest checkpoint
    ResumePermissions allow{};                          // with resume
    std::optional<std::filesystem::path> init_from;     // weights of a Hugging Face folder; default: of training.seed
    std::optional<std::filesystem::path> timing;        // file for the times of every operation
    std::optional<std::filesystem::path> dump_batches;  // file for the token batches that training reads
    std::optional<std::filesystem::path> tensor_stats;  // file for the statistics of the tensors of training
    std::int64_t tensor_stats_every = 1;                // steps from one with statistics to the next
    bool overwrite = false;                             // the three files above may replace regular ones
    std::vector<std::filesystem::path> inputs{};        // what else is read: the configuration
    std::optional<std::int64_t> oracle_step;            // step to check operation by operation, and end with
    std::shared_ptr<const RunPrompts> prompts{};        // with samples.interval: what the samples follow
    DecoderOptions decoder{};                           // of the samples
    Team* team = nullptr;                               // whose rank the run is; null: there is one rank
    std::string command;                                // how the run was started, for its log
    std::FILE* out = stdout;                            // progress
    std::FILE* err = stderr;                            // what was passed over

    WeightsRequest weights() const { return {.resume = resume, .init_from = init_from, .err = err}; }
};

}  // namespace coda
