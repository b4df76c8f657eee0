// The subcommands of coda_bench. Each function adds one, with its options and the callback that runs it.
//
// A callback prints its table on stdout and, with --json FILE, writes {header, records} with write_run
// (result_header.h). It throws coda::Error for what a user can correct; main prints that to stderr and exits with 1.
#pragma once

#include <CLI/CLI.hpp>

namespace coda::bench {

void add_gemm(CLI::App& app);
void add_f8(CLI::App& app);
void add_attention(CLI::App& app);
void add_decode(CLI::App& app);
void add_pointwise(CLI::App& app);
void add_step(CLI::App& app);
void add_header(CLI::App& app);

}  // namespace coda::bench
