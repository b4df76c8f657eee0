// A checkpoint that several writers make: the files of one writer, or nothing.
#include <nlohmann/json.hpp>
#include <optional>

#include "src/io/checkpoint.h"
#include "tests/catch.h"
#include "tests/io/scratch_folder.h"

using namespace coda;
using Catch::Contains;

namespace {

std::vector<std::byte> numbered(std::size_t bytes) {
    std::vector<std::byte> contents(bytes);
    for (std::size_t i = 0; i < bytes; ++i) contents[i] = static_cast<std::byte>(i * 7 % 251);
    return contents;
}

std::string file_of(const std::filesystem::path& run, const char* name) {
    return read_file(run / "checkpoints/step_00000003" / name);
}

bool has_temporary(const std::filesystem::path& run) {
    for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints"))
        if (entry.path().filename().string().starts_with(kTemporaryPrefix)) return true;
    return false;
}

}  // namespace

TEST_CASE("parts that several writers write make the files that one makes") {
    const ScratchFolder scratch;
    const std::vector<std::byte> weights = numbered(3 * kCheckpointChunk + 100), moments = numbered(1000);
    const nlohmann::json state = {{"tokens", 12}};
    const Segment segments[] = {{"master", weights}, {"m", moments}};
    const std::filesystem::path one = scratch.path() / "one", several = scratch.path() / "several";
    write_checkpoint(one, 3, state, segments, 2);

    CheckpointDraft draft(several, 3, {{"master", segments[0].bytes}, {"m", segments[1].bytes}});
    std::vector<CheckpointPart> parts;
    for (int writer = 0; writer < 2; ++writer) parts.emplace_back(several, 3, "master");
    const std::span all(weights);
    const std::size_t half = 1 << 20;
    for (std::size_t at = 0; at < weights.size(); at += half)
        parts[at / half % 2].write(static_cast<std::int64_t>(at), all.subspan(at, std::min(half, weights.size() - at)));
    for (CheckpointPart& part : parts) part.finish();
    CheckpointPart rest(several, 3, "m");
    rest.write(0, moments);
    rest.finish();
    draft.complete(state, 2);

    for (const char* name : {"master.bin", "m.bin", "meta.json", "complete"})
        CHECK((file_of(several, name) == file_of(one, name)));
    CHECK(open_checkpoint(several / "checkpoints/step_00000003").step == 3);
    CHECK(!has_temporary(several));
}

TEST_CASE("a draft that is not completed leaves nothing, and no reader takes it") {
    const ScratchFolder scratch;
    const auto ignored = [](const std::string&) {};
    const std::filesystem::path run = scratch.path();
    {
        const CheckpointDraft draft(run, 3, {{"m", 1000}});
        CHECK(has_temporary(run));
        CHECK(!newest_checkpoint(run, ignored));
    }
    CHECK(!has_temporary(run));
}

TEST_CASE("a part of a draft that cannot be seen is refused with its path") {
    const ScratchFolder scratch;
    CHECK_THROWS_WITH(CheckpointPart(scratch.path(), 3, "m"),
                      Contains("open") && Contains(".tmp-step_00000003/m.bin") && Contains("No such file"));
}
