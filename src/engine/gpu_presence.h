// Whether this machine has an NVIDIA GPU, asked of the system and not of a driver, which may be missing or too old.
#pragma once

#include <filesystem>
#include <string>

namespace coda {

/// What shows that there is one: "/dev/nvidia0", or "PCI device 0000:3b:00.0". Empty where nothing does. `root`: of the
/// file system.
std::string nvidia_gpu_sign(const std::filesystem::path& root = "/");

}  // namespace coda
