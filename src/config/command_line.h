// The command line of coda_train: every configuration key is a flag, flags win over the config file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "src/config/config.h"

namespace coda {

struct CommandLine {
    Config config;            // complete and valid, unless help or version is asked for
    nlohmann::json resolved;  // to_json(config)
    bool dry_run = false, print_config = false, print_schedule = false, resume = false, eval = false;
    bool version = false;             // print the build id and exit; config is empty
    std::optional<std::string> help;  // print this text and exit; config is empty
    std::optional<std::string> config_path;
    std::optional<std::string> timing, init_from, export_dir, dump_batches;
    std::optional<std::int64_t> oracle_step;  // in [1, training.steps]
    std::string command;                      // argv, quoted for a POSIX shell
};

/// Parses argv. With --init-from DIR the model section is that of DIR/config.json; model keys may then be left out, and
/// those given must agree.
/// Throws UsageError naming the flag, or file and key, for a bad command line or config; Error naming the file when
/// DIR/config.json cannot be read or is no LLaMA that this program can run.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace coda
