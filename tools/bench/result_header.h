// What a benchmark writes with --json: {header, records}. The header says which code ran, on which GPU, at which
// clocks. tools/bench/records.py merges such files into the result files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/io/output_file.h"

namespace coda::bench {

struct Clocks {
    std::string driver;  // version of the driver, such as 580.65.06; empty where nvidia-smi does not answer
    int sm_mhz = 0;      // 0: unknown
    int memory_mhz = 0;  // 0: unknown
};

/// What nvidia-smi now says of the current device. Ask while the GPU works: an idle one has low clocks. Takes about 0.1
/// s.
Clocks current_clocks();

/// {commit, gpu, driver, clocks: {sm_mhz, memory_mhz, max_sm_mhz}, date, command}; command is this
/// process's. Throws Error without a GPU.
nlohmann::json result_header(const Clocks& clocks);

/// Throws Error naming the flag unless a benchmark may write these files, "" for none, when it is done: nothing is
/// there, or with `overwrite` a regular file other than `inputs`.
void require_outputs(const std::vector<NamedOutput>& outputs, bool overwrite, const InputFiles& inputs = {});

/// Writes {header, records} to the file `path`: whole, or as it was. Throws Error if that fails, and without a GPU.
void write_run(const std::string& path, const Clocks& clocks, const nlohmann::json& records);

}  // namespace coda::bench
