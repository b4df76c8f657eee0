// Writes checkpoints on a thread of its own, one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/io/checkpoint.h"

namespace coda {

class CheckpointWriter {
  public:
    struct Job {
        std::int64_t step = 0;
        nlohmann::json state;
        std::vector<Segment> segments;  // what they read must not change until the job is done
        std::function<void()> ready;    // waits until the segments' contents are there; may be empty
    };
    struct Outcome {
        std::int64_t step = 0;
        std::optional<std::string> problem;  // why it was not written, or what of the clearing up failed
    };

    CheckpointWriter(std::filesystem::path run, std::int64_t keep);
    ~CheckpointWriter();  // waits
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;

    /// Begins to write. The job before must have been taken by poll() or wait().
    void start(Job job);

    /// How the job under way ended, once: poll() if it has, wait() when it has. Nothing when none is under way.
    std::optional<Outcome> poll();
    std::optional<Outcome> wait();

  private:
    std::filesystem::path run_;
    std::int64_t keep_;
    std::future<Outcome> under_way_;
};

}  // namespace coda
