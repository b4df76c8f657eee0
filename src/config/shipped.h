// What ships with the program: configurations, and the scripts that make the data they name.
//
// Both lie in share/coda_train, which is found relative to the program or libcoda: in the installation's share folder,
// or next to bin/ in a build tree, where it leads to the source tree.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace coda {

/// Where share/coda_train may be, whether it is there or not. Empty where the system does not name that file.
std::vector<std::filesystem::path> share_folders();

/// The path of the file that --config NAME means. A name with a slash is a path and nothing else. A bare name is a file
/// of the current folder or, if there is none, a shipped configuration. Throws UsageError that names every place it
/// looked in and every shipped configuration.
std::string find_config(const std::string& name, const std::vector<std::filesystem::path>& shares = share_folders());

/// The command, as typed in the current folder, that makes the token files that `pattern` names: the script
/// data/NAME.py writes FOLDER/NAME/..., all of its files. Empty if there is no such script. Shards need a tokenizer:
/// `tokenizer`, else the one that `vocab_size` implies.
std::string data_command(const std::string& pattern, const std::optional<std::string>& tokenizer,
                         std::int64_t vocab_size, const std::vector<std::filesystem::path>& shares = share_folders());

}  // namespace coda
