// Files that a test makes or finds next to the source tree.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tests/io/scratch_folder.h"
#include "tests/source_folder.h"

namespace coda {

inline void put(const std::filesystem::path& path, std::string_view contents) {
    std::ofstream(path, std::ios::binary) << contents;
}

/// The folder of real token files: $CODA_SHARED_DATA, or shared/data next to the source tree; empty if there is none.
inline std::filesystem::path shared_data() {
    const char* named = std::getenv("CODA_SHARED_DATA");
    const auto folder =
        named != nullptr ? std::filesystem::path(named) : test::source_folder().parent_path() / "shared" / "data";
    return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

}  // namespace coda
