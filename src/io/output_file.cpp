#include "src/io/output_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <system_error>

#include "kernels/core/error.h"
#include "src/core/file_kind.h"
#include "src/io/files.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

std::optional<std::pair<dev_t, ino_t>> identity_of(const fs::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return std::nullopt;
    return std::pair(status.st_dev, status.st_ino);
}

/// `shown` is what the message calls `path`.
void require_free(const std::string& shown, const fs::path& path, bool overwrite, const InputFiles& inputs) {
    std::error_code error;
    const fs::file_type type = fs::symlink_status(path, error).type();
    if (type == fs::file_type::not_found) return;
    require(!inputs.contains(path), shown, ": the run reads this file; give another name");
    require(type == fs::file_type::regular, shown, ": is ", file_kind(type), "; give the name of a file");
    require(overwrite, shown, ": exists; give another name, or --overwrite to replace it");
}

}  // namespace

void InputFiles::add(const fs::path& file) {
    if (const auto identity = identity_of(file)) files_.insert(*identity);
}

void InputFiles::add_folder(const fs::path& folder) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) add(entry.path());
}

bool InputFiles::contains(const fs::path& file) const {
    const auto identity = identity_of(file);
    return identity && files_.contains(*identity);
}

fs::path place_of(const fs::path& path) {
    // Without a part that exists, weakly_canonical leaves a relative path relative.
    const fs::path absolute = fs::absolute(path);
    std::error_code error;
    const fs::path resolved = fs::weakly_canonical(absolute, error);
    return error ? absolute.lexically_normal() : resolved;
}

void require_output_file(const std::string& flag, const fs::path& path, bool overwrite, const InputFiles& inputs) {
    const std::string shown = flag + " " + path.string();
    const fs::path folder = fs::absolute(path).parent_path();
    std::error_code error;
    require(path.has_filename(), shown, ": is a folder; give the name of a file");
    require(fs::is_directory(folder, error), shown, ": there is no folder ", folder.string());
    require_free(shown, path, overwrite, inputs);
    const fs::path aside = aside_of(path);
    require_free(shown + " is first written as " + aside.string() + ", which", aside, overwrite, inputs);
    require(::access(folder.c_str(), W_OK) == 0, shown, ": the folder ", folder.string(), " cannot be written to");
}

void require_different_outputs(const std::vector<NamedOutput>& outputs) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const auto& [flag, path] = outputs[i];
            const auto& [other_flag, other] = outputs[j];
            const bool same = place_of(path) == place_of(other) || place_of(aside_of(path)) == place_of(other) ||
                              place_of(path) == place_of(aside_of(other));
            require(!same, flag, " ", path.string(), " and ", other_flag, " ", other.string(),
                    ": one would replace the other; give different names");
        }
    }
}

}  // namespace coda
