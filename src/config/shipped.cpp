#include "src/config/shipped.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "src/config/shell_quote.h"
#include "src/core/errors.h"

namespace coda {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLlama3Vocabulary = 128256, kGpt2Vocabulary = 50257;

/// The data set of which a script fetches a part unless it is told how many files to fetch, and all of them.
constexpr const char* kInFiles = "fineweb_edu";
constexpr int kAllFiles = 14;

/// File names of the folder's configurations, sorted; empty if the folder does not exist.
std::vector<std::string> configurations(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        if (entry.path().extension() == ".json") names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

std::string joined(const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return all;
}

/// `path` as a user types it in the current folder: relative if it lies below it, else absolute.
std::string typed(const fs::path& path) {
    std::error_code error;
    const fs::path absolute = fs::canonical(path, error);
    if (error) return path.string();
    const fs::path relative = absolute.lexically_relative(fs::current_path(error));
    const bool below = !error && relative.has_parent_path() && *relative.begin() != "..";
    return (below ? relative : absolute).string();
}

std::string tokenizer_option(const std::optional<std::string>& tokenizer, std::int64_t vocab_size) {
    if (tokenizer) return quote(*tokenizer);
    if (vocab_size == kLlama3Vocabulary) return "llama3";
    return vocab_size == kGpt2Vocabulary ? "gpt2" : "FILE";
}

}  // namespace

std::vector<fs::path> share_folders() {
    // Of the program, or of libcoda where that is what runs.
    Dl_info object{};
    std::error_code error;
    if (dladdr(reinterpret_cast<const void*>(&find_config), &object) == 0) return {};
    const fs::path file = fs::canonical(object.dli_fname, error);
    if (error) return {};
    std::vector<fs::path> folders;
    for (const char* from_bin : {CODA_SHARE_FROM_BIN, "../share/coda_train"}) {
        const fs::path folder = (file.parent_path() / from_bin).lexically_normal();
        if (std::count(folders.begin(), folders.end(), folder) == 0) folders.push_back(folder);
    }
    return folders;
}

std::string find_config(const std::string& name, const std::vector<fs::path>& shares) {
    std::error_code error;
    if (name.find('/') != std::string::npos || fs::exists(name, error)) return name;
    std::string places = text("the current folder ", fs::current_path(error).string());
    std::vector<std::string> shipped;
    for (const fs::path& share : shares) {
        const fs::path folder = share / "configs";
        if (fs::exists(folder / name, error)) return (folder / name).string();
        places += " and " + folder.string();
        for (std::string& each : configurations(folder)) shipped.push_back(std::move(each));
    }
    throw UsageError(text("--config ", quote(name), ": there is no such file; looked in ", places,
                          shipped.empty() ? "; no configuration is shipped there" : "; shipped are ", joined(shipped)));
}

std::string data_command(const std::string& pattern, const std::optional<std::string>& tokenizer,
                         std::int64_t vocab_size, const std::vector<fs::path>& shares) {
    const fs::path file(pattern), folder = file.parent_path();
    if (!folder.has_filename()) return {};
    const std::string name = folder.filename().string();
    const auto script_in = [&](const fs::path& share) { return share / "data" / (name + ".py"); };
    const auto share = std::find_if(shares.begin(), shares.end(),
                                    [&](const fs::path& each) { return ::access(script_in(each).c_str(), X_OK) == 0; });
    if (share == shares.end()) return {};
    std::string command = quote(typed(script_in(*share)));
    if (folder.lexically_normal() != fs::path("data") / name) command += " --folder " + quote(folder.string());
    if (file.extension() != ".txt") command += " --tokenizer " + tokenizer_option(tokenizer, vocab_size);
    if (name == kInFiles) command += text(" --files ", kAllFiles);
    return command;
}

}  // namespace coda
