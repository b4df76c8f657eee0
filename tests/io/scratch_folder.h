// What the tests of files share: a temporary folder, and the messages of errors.
#pragma once

#include <stdlib.h>  // mkdtemp

#include <filesystem>
#include <string>
#include <system_error>

#include "kernels/core/error.h"

namespace coda {

/// An empty folder, removed with all its contents at the end of the scope.
class ScratchFolder {
  public:
    ScratchFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "coda-test-XXXXXX").string();
        require(::mkdtemp(name.data()) != nullptr, "no scratch folder ", name);
        path_ = name;
    }
    ~ScratchFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

/// The message of the Error that `action` throws; "" when it throws none.
template <class Action>
std::string message_of(Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

inline bool contains(const std::string& all, const std::string& part) { return all.find(part) != std::string::npos; }

}  // namespace coda
