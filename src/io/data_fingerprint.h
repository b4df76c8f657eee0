// What tells whether the data files of a run are still the same: name, size, and a checksum of samples of each file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "src/io/loader.h"

namespace coda {

/// [{"name", "bytes", "xxh64"}, ...] of the files of `ranges`, each once, with "mask" where a mask lies next to it. The
/// checksums xxh64 and mask are the XXH64 of 64 blocks of 4 KiB, evenly spaced, the file's first and last among them;
/// of the whole file where it is smaller.
nlohmann::json data_fingerprint(const TokenRanges& ranges);

struct DataChanges {
    std::vector<std::string> changed;         // one sentence per file of the same name with other contents
    std::vector<std::string> added, removed;  // names
};

/// Compares two fingerprints. Throws nlohmann's exceptions where `before` is none.
DataChanges compare_data(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace coda
