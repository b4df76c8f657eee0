// Runs the script that compares checkpoints with the safetensors and transformers packages.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "kernels/core/error.h"
#include "tests/catch.h"
#include "tests/source_folder.h"

namespace coda {

/// Runs safetensors_interop.py with CODA_PYTHON (default python3) and checks that it succeeds. Returns false, with a
/// message, where the packages that it compares with are not installed.
inline bool run_interop(const std::string& arguments) {
    constexpr int kPackagesMissing = 77;
    const char* python = std::getenv("CODA_PYTHON");
    const std::filesystem::path script = test::source_folder() / "tests/io/safetensors_interop.py";
    const std::string command = text(python ? python : "python3", " ", script.string(), " ", arguments);
    const int status = std::system(command.c_str());
    if (WIFEXITED(status) && WEXITSTATUS(status) == kPackagesMissing) {
        WARN("skipped, the Python packages are not installed: " << command);
        return false;
    }
    INFO(command);
    CHECK(status == 0);
    return status == 0;
}

}  // namespace coda
