// The command line of coda_train: every configuration key is a flag, and flags override the config file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/config/export_dtype.h"
#include "src/core/decoder_options.h"

namespace coda {

struct CommandLine {
    Config config;            // complete and valid, unless help or version is asked for
    nlohmann::json resolved;  // to_json(config)
    bool dry_run = false, print_config = false, print_schedule = false, resume = false, eval = false;
    bool overwrite = false;           // --timing, --tensor-stats and --dump-batches may replace regular files
    bool version = false;             // print the build id and exit; config is empty
    std::optional<std::string> help;  // print this text and exit; config is empty
    std::optional<std::string> config_path;
    std::optional<std::string> timing, tensor_stats, init_from, export_dir, dump_batches;
    ExportDtype export_dtype = ExportDtype::bfloat16;  // of export_dir's weights
    std::int64_t calibrate = 0;                        // training sequences for GPTQ, with int4; 0: to nearest
    std::int64_t tensor_stats_every = 1;
    std::int64_t ranks = 1;                                       // that a dry run plans for
    std::optional<std::int64_t> oracle_step;                      // in [1, training.steps]
    bool allow_other_device = false, allow_changed_data = false;  // --allow, with --resume
    // The decoder of samples during training. An error of a sample ends the run, so by default nothing is run that the
    // training does not run too.
    DecoderOptions decoder{.choice = DecoderChoice::passes};
    std::string command;  // argv, quoted for a POSIX shell

    /// False where the mode only uses weights.
    bool trains() const { return !eval && !export_dir; }
    /// Whether it starts a training run, and does not only print an answer.
    bool runs() const { return trains() && !help && !version && !print_config && !dry_run && !print_schedule; }
};

/// Parses argv. With --init-from DIR the model section comes from DIR/config.json; model keys may then be left out, and
/// those given must agree with it. DIR/tokenizer.json is data.tokenizer where that key is not given. With --resume and
/// a checkpoint in output.directory, both come from the checkpoint instead, and DIR is not read. Throws UsageError
/// naming the flag, or file and key, for a bad command line or config. Throws Error naming the file when
/// DIR/config.json cannot be read or is not a LLaMA that this program can run.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace coda
