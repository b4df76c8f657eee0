#include "src/train/checkpoint_writer.h"

#include <chrono>
#include <utility>

#include "kernels/core/error.h"

namespace coda {

CheckpointWriter::CheckpointWriter(std::filesystem::path run, std::int64_t keep) : run_(std::move(run)), keep_(keep) {}

CheckpointWriter::~CheckpointWriter() {
    if (under_way_.valid()) under_way_.wait();
}

void CheckpointWriter::start(Job job) {
    require(!under_way_.valid(), "the checkpoint of step ", job.step, " cannot begin before the one under way ends");
    under_way_ = std::async(std::launch::async, [run = run_, keep = keep_, job = std::move(job)]() -> Outcome {
        try {
            if (job.ready) job.ready();
            write_checkpoint(run, job.step, job.state, job.segments, keep);
        } catch (const std::exception& error) {
            return {job.step, error.what()};
        }
        return {job.step, std::nullopt};
    });
}

std::optional<CheckpointWriter::Outcome> CheckpointWriter::poll() {
    if (!under_way_.valid() || under_way_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
    return under_way_.get();
}

std::optional<CheckpointWriter::Outcome> CheckpointWriter::wait() {
    if (!under_way_.valid()) return {};
    return under_way_.get();
}

}  // namespace coda
