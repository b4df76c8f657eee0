// Checkpoints that a test writes and recognises.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "src/io/checkpoint.h"
#include "tests/catch.h"

namespace coda {

/// Contents that tell steps, segments and places apart.
inline std::vector<std::byte> contents_of(std::int64_t step, std::size_t segment, std::size_t bytes) {
    std::vector<std::byte> contents(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
        contents[i] = static_cast<std::byte>(static_cast<std::size_t>(step) * 31 + segment * 7 + i * 13 + i / 251);
    return contents;
}

inline constexpr std::size_t kSmall = 1000;

inline void save(const std::filesystem::path& run, std::int64_t step, std::int64_t keep = 3,
                 std::size_t bytes = kSmall) {
    const auto weights = contents_of(step, 0, bytes);
    const auto moments = contents_of(step, 1, bytes / 2);
    const std::vector<Segment> segments{{"weights", weights}, {"moments", moments}};
    write_checkpoint(run, step, {{"sequences", step * 8}, {"loss", 1.0 / static_cast<double>(step + 1)}}, segments,
                     keep);
}

/// Checks that the checkpoint is the one that save() wrote.
inline void check_contents(const CheckpointInfo& info, std::size_t bytes = kSmall) {
    INFO(info.folder);
    CHECK(info.state.at("sequences") == info.step * 8);
    CHECK(info.state.at("loss").get<double>() == 1.0 / static_cast<double>(info.step + 1));
    std::vector<std::byte> weights(bytes), moments(bytes / 2);
    read_segment(info, "weights", weights);
    read_segment(info, "moments", moments);
    CHECK(weights == contents_of(info.step, 0, bytes));
    CHECK(moments == contents_of(info.step, 1, bytes / 2));
}

inline std::filesystem::path step_folder(const std::filesystem::path& run, int step) {
    return run / "checkpoints" / text("step_0000000", step);
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

inline std::optional<CheckpointInfo> newest(const std::filesystem::path& run) {
    return newest_checkpoint(run, [](const std::string&) {});
}

}  // namespace coda
