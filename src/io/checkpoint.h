// Checkpoints: a folder per step that is either complete or recognisably not one.
//
//   <run>/checkpoints/step_00000010/
//       <segment>.bin   raw little-endian bytes, one file per segment
//       meta.json       {format, version, step, segments: [{name, bytes, xxh64}], state: what the trainer passed}
//       complete        the XXH64 of meta.json: the marker, written last
//
// The version is 2. Version 1, which has no FP8 state, is read too.
//
// A checkpoint is written under the temporary name ".tmp-step_00000010"; every file and the folder are synced; then it
// is renamed. So a kill or a power failure at any moment leaves the earlier checkpoints and either the whole new one or
// none of it. The next write removes temporary folders that were left behind. Only one process may write at a time
// (run_lock.h). Any number may read: a checkpoint that is open is not deleted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/io/files.h"
#include "src/io/folder_lock.h"

namespace coda {

/// Named bytes to be written. Their source delivers consecutive parts of at most kCheckpointChunk bytes, so a segment
/// in device memory needs only a staging buffer on the host.
class Segment {
  public:
    using Source = std::function<void(std::int64_t offset, std::span<std::byte> into)>;

    /// Bytes in host memory, which must outlive the segment.
    Segment(std::string segment_name, std::span<const std::byte> contents);
    Segment(std::string segment_name, std::int64_t byte_count, Source source);

    /// Passes the contents to `sink`, in order.
    void stream(const std::function<void(std::span<const std::byte>)>& sink) const;

    std::string name;  // letters, digits, '_', '-' and '.'
    std::int64_t bytes = 0;

  private:
    std::span<const std::byte> contents_;
    Source source_;
};

inline constexpr std::int64_t kCheckpointChunk = std::int64_t{16} << 20;

struct SegmentInfo {
    std::string name;
    std::int64_t bytes = 0;
    std::uint64_t xxh64 = 0;
};

struct CheckpointInfo {
    std::filesystem::path folder;
    std::int64_t step = 0;
    nlohmann::json state;
    std::vector<SegmentInfo> segments;
    std::shared_ptr<const FolderLock> in_use{};  // keeps the folder from being deleted

    /// Throws Error naming the folder when there is no such segment.
    const SegmentInfo& segment(const std::string& name) const;
};

/// Writes the checkpoint of `step` and replaces one of the same step. Then deletes the oldest complete ones until
/// `keep` are left, not counting later steps (keep 0: deletes none); one that is being read stays until the next time.
/// `state` must have no NaN or infinity: JSON has none. Throws Error when something cannot be written; earlier
/// checkpoints are then as they were, and nothing of this one remains. Also throws when only the deletions fail; this
/// checkpoint is then complete.
void write_checkpoint(const std::filesystem::path& run, std::int64_t step, const nlohmann::json& state,
                      std::span<const Segment> segments, std::int64_t keep);

/// Names and bytes of the segments that several processes write.
struct SegmentSize {
    std::string name;
    std::int64_t bytes = 0;
};

/// A checkpoint that several processes write together: the first makes it, each writes its parts (CheckpointPart), and
/// when all have, the first completes it. Until then it has a temporary name, as in write_checkpoint. Without
/// complete() it is removed.
class CheckpointDraft {
  public:
    CheckpointDraft(std::filesystem::path run, std::int64_t step, std::vector<SegmentSize> segments);
    ~CheckpointDraft();
    CheckpointDraft(const CheckpointDraft&) = delete;
    CheckpointDraft& operator=(const CheckpointDraft&) = delete;

    /// Reads the segments for their checksums. Then as write_checkpoint ends.
    void complete(const nlohmann::json& state, std::int64_t keep);

  private:
    std::filesystem::path run_, temporary_;
    std::int64_t step_;
    std::vector<SegmentSize> segments_;
    std::shared_ptr<const FolderLock> being_written_;
};

/// A process's parts of a segment of the draft.
class CheckpointPart {
  public:
    /// Throws Error where the draft cannot be seen, as in a folder that only looks shared.
    CheckpointPart(const std::filesystem::path& run, std::int64_t step, const std::string& segment);
    void write(std::int64_t offset, std::span<const std::byte> bytes) { file_.write_at(offset, bytes); }
    void finish() { file_.finish(); }

  private:
    FileWriter file_;
};

/// Reads and verifies one checkpoint folder, including size and checksum of every segment. Throws Error naming the file
/// that is missing, foreign or damaged.
CheckpointInfo open_checkpoint(const std::filesystem::path& folder);

/// The complete checkpoint of the latest step, verified as by open_checkpoint. Every other entry of <run>/checkpoints
/// stays unchanged. `on_skip` gets a sentence for each entry that cannot be read, unless the run has deleted it
/// meanwhile. Throws Error if there are checkpoints and all of them are damaged.
std::optional<CheckpointInfo> newest_checkpoint(const std::filesystem::path& run,
                                                const std::function<void(const std::string& message)>& on_skip);

/// Passes a segment's contents to `sink` in consecutive parts. Throws Error when file and meta.json disagree on size or
/// checksum; all parts have been passed on by then.
void read_segment(const CheckpointInfo& checkpoint, const std::string& name,
                  const std::function<void(std::int64_t offset, std::span<const std::byte> part)>& sink);

/// The file of a segment. Its size is checked and its contents are not: open_checkpoint has done that.
FileReader segment_reader(const CheckpointInfo& checkpoint, const std::string& name);

/// A whole segment; also throws Error when `out` has another size.
void read_segment(const CheckpointInfo& checkpoint, const std::string& name, std::span<std::byte> out);

}  // namespace coda
