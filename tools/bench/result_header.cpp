#include "tools/bench/result_header.h"

#include <cuda_runtime.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>

#include "kernels/hopper/sm90/check.h"
#include "src/core/build_id.h"
#include "src/io/files.h"

namespace coda::bench {

namespace {

int current_device() {
    int device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    return device;
}

/// This process's arguments, separated by spaces.
std::string command_line() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    std::string line, argument;
    while (std::getline(file, argument, '\0')) line += (line.empty() ? "" : " ") + argument;
    return line;
}

}  // namespace

Clocks current_clocks() {
    // By bus id: CUDA and nvidia-smi number devices differently, and CUDA_VISIBLE_DEVICES hides some.
    char bus[32] = "";
    CUDA_CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, current_device()));
    const std::string command =
        text("nvidia-smi --query-gpu=driver_version,clocks.sm,clocks.mem --format=csv,noheader,nounits --id=", bus,
             " 2>/dev/null");
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> answer(popen(command.c_str(), "r"), pclose);
    Clocks clocks;
    char driver[64] = "";
    if (answer && std::fscanf(answer.get(), "%63[^,], %d, %d", driver, &clocks.sm_mhz, &clocks.memory_mhz) >= 1)
        clocks.driver = driver;
    return clocks;
}

nlohmann::json result_header(const Clocks& clocks) {
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, current_device()));
    int max_khz = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&max_khz, cudaDevAttrClockRate, current_device()));
    char date[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    const auto known = [](int mhz) { return mhz > 0 ? nlohmann::json(mhz) : nlohmann::json(nullptr); };
    return {{"commit", build_commit()},
            {"gpu", properties.name},
            {"driver", clocks.driver.empty() ? nlohmann::json(nullptr) : nlohmann::json(clocks.driver)},
            {"clocks",
             {{"sm_mhz", known(clocks.sm_mhz)},
              {"memory_mhz", known(clocks.memory_mhz)},
              {"max_sm_mhz", known(max_khz / 1000)}}},
            {"date", date},
            {"command", command_line()}};
}

void require_outputs(const std::vector<NamedOutput>& outputs, bool overwrite, const InputFiles& inputs) {
    std::vector<NamedOutput> given;
    for (const NamedOutput& output : outputs) {
        if (output.second.empty()) continue;
        require_output_file(output.first, output.second, overwrite, inputs);
        given.push_back(output);
    }
    require_different_outputs(given);
}

void write_run(const std::string& path, const Clocks& clocks, const nlohmann::json& records) {
    const nlohmann::json run{{"header", result_header(clocks)}, {"records", records}};
    replace_file(path, bytes_of(run.dump(1) + "\n"));
}

}  // namespace coda::bench
