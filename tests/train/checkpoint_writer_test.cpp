#include "src/train/checkpoint_writer.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/catch.h"
#include "tests/io/test_checkpoints.h"
#include "tests/io/test_files.h"

using namespace coda;
using Catch::Contains;

namespace {

CheckpointWriter::Job job_of(std::int64_t step, const std::vector<std::byte>& weights) {
    return {.step = step, .state = {{"sequences", step}}, .segments = {{"weights", weights}}, .ready = {}};
}

}  // namespace

TEST_CASE("a checkpoint is written while the run continues", "[checkpoint_writer]") {
    const ScratchFolder scratch;
    std::vector<std::byte> weights(kSmall);
    std::atomic<bool> may_go = false;
    CheckpointWriter writer(scratch.path(), 2);
    CHECK_FALSE(writer.poll());
    CHECK_FALSE(writer.wait());

    CheckpointWriter::Job job = job_of(1, weights);
    job.ready = [&] {
        while (!may_go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    writer.start(std::move(job));
    CHECK_FALSE(writer.poll());
    CHECK_THROWS_WITH(writer.start(job_of(2, weights)), Contains("cannot begin before"));
    const std::vector<std::byte> latest = contents_of(1, 0, kSmall);
    std::copy(latest.begin(), latest.end(), weights.begin());  // what is there when `ready` returns counts
    may_go = true;
    const auto outcome = writer.wait();
    REQUIRE(outcome);
    CHECK(outcome->step == 1);
    CHECK_FALSE(outcome->problem);
    std::vector<std::byte> back(kSmall);
    read_segment(*newest(scratch.path()), "weights", back);
    CHECK((back == latest));

    for (std::int64_t step = 2; step <= 5; ++step) {
        writer.start(job_of(step, weights));
        std::optional<CheckpointWriter::Outcome> ended;
        while (!ended) ended = writer.poll();
        CHECK(ended->step == step);
        CHECK_FALSE(writer.poll());
    }
    CHECK(names_in(scratch.path() / "checkpoints") == std::vector<std::string>{"step_00000004", "step_00000005"});
}

TEST_CASE("what cannot be written is said, and the next one is", "[checkpoint_writer]") {
    const ScratchFolder scratch;
    const std::vector<std::byte> weights(kSmall);
    CheckpointWriter writer(scratch.path() / "run", 2);
    put(scratch.path() / "run", "a file in the way");
    writer.start(job_of(1, weights));
    CHECK_THAT(*writer.wait()->problem, Contains("the checkpoint of step 1 was not written"));
    std::filesystem::remove(scratch.path() / "run");
    writer.start(job_of(2, weights));
    CHECK_FALSE(writer.wait()->problem);
    CHECK(newest(scratch.path() / "run")->step == 2);
}

TEST_CASE("a writer that is destroyed finishes first", "[checkpoint_writer]") {
    const ScratchFolder scratch;
    const std::vector<std::byte> weights(kSmall);
    {
        CheckpointWriter writer(scratch.path(), 2);
        CheckpointWriter::Job job = job_of(1, weights);
        job.ready = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
        writer.start(std::move(job));
    }
    CHECK(newest(scratch.path())->step == 1);
}
