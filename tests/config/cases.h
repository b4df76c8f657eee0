// What the tests of the configuration share: a small valid document, the folder of the shipped configs, temporary
// files.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "src/core/errors.h"
#include "tests/source_folder.h"

namespace coda::test {

inline std::filesystem::path configs_folder() { return source_folder() / "configs"; }

/// Only the required keys.
inline nlohmann::json small_document() {
    return nlohmann::json::parse(R"({
        "model": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "vocab_size": 256},
        "data": {"train": "text.txt"},
        "training": {"seq_len": 32, "micro_batch_size": 2, "steps": 10}
    })");
}

/// small_document with the value at `pointer` ("/training/steps") replaced.
inline nlohmann::json changed(const std::string& pointer, const nlohmann::json& value) {
    nlohmann::json document = small_document();
    document[nlohmann::json::json_pointer(pointer)] = value;
    return document;
}

/// The message of the E that `action` throws; empty when it throws none.
template <class E, class Action>
std::string message_of(const Action& action) {
    try {
        action();
    } catch (const E& error) {
        return error.what();
    }
    return "";
}

/// Which of `parts` a message lacks, for CHECK(lacking(error, {...}) == ""): Catch2 v2 and v3 share no matcher for
/// substrings.
inline std::string lacking(const std::string& message, const std::vector<std::string>& parts) {
    std::string result;
    for (const std::string& part : parts) {
        if (message.find(part) == std::string::npos) result += text("no '", part, "' in '", message, "' ");
    }
    return result;
}

/// A temporary folder, removed at the end of the scope.
class TemporaryFolder {
  public:
    TemporaryFolder()
        : path_(std::filesystem::temp_directory_path() / text("coda_config_test_", std::random_device{}())) {
        std::filesystem::create_directories(path_);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    std::string write(const std::string& name, const std::string& content) const {
        std::ofstream(path_ / name, std::ios::binary) << content;
        return (path_ / name).string();
    }
    std::string path() const { return path_.string(); }

  private:
    std::filesystem::path path_;
};

}  // namespace coda::test
