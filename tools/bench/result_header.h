// What a benchmark writes with --json: {header, records}, the header saying which code, on which GPU, at which clocks.
// tools/bench/records.py merges such files into the result files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace coda::bench {

struct Clocks {
    std::string driver;  // version of the driver, such as 580.65.06; empty where nvidia-smi does not answer
    int sm_mhz = 0;      // 0: unknown
    int memory_mhz = 0;  // 0: unknown
};

/// What nvidia-smi says of the current device now. Ask while the GPU works: an idle one has low clocks. Takes about
/// 0.1 s.
Clocks current_clocks();

/// {commit, source_hash, gpu, driver, clocks: {sm_mhz, memory_mhz, max_sm_mhz}, date, command}, command being this
/// process's. Throws Error without a GPU.
nlohmann::json result_header(const Clocks& clocks);

/// Writes {header, records} to the file `path`. Throws Error where that fails, and without a GPU.
void write_run(const std::string& path, const Clocks& clocks, const nlohmann::json& records);

}  // namespace coda::bench
