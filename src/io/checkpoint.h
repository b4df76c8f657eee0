// Checkpoints: a folder per step that is either complete or recognisably not one.
//
//   <run>/checkpoints/step_00000010/
//       <segment>.bin   raw little-endian bytes, one file per segment
//       meta.json       {format, version, step, segments: [{name, bytes, xxh64}], state: what the trainer passed}
//       complete        the XXH64 of meta.json: the marker, written last
//
// A checkpoint is written under the temporary name ".tmp-step_00000010", every file and the folder synced, and then
// renamed, so a kill or a power failure at any moment leaves the earlier checkpoints and either the whole new one or
// none. Temporary folders that such a moment leaves behind are removed by the next write. One process writes at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace coda {

/// Named bytes to be written. Their source is asked for consecutive parts of at most kCheckpointChunk bytes, so a
/// segment in device memory needs only a staging buffer of the host.
class Segment {
  public:
    using Source = std::function<void(std::int64_t offset, std::span<std::byte> into)>;

    /// Bytes in host memory, which must outlive the segment.
    Segment(std::string segment_name, std::span<const std::byte> contents);
    Segment(std::string segment_name, std::int64_t byte_count, Source source);

    /// Passes the contents on, in order.
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

    /// Throws Error naming the folder when there is no such segment.
    const SegmentInfo& segment(const std::string& name) const;
};

/// Writes the checkpoint of `step`, replacing one of the same step, then deletes the oldest complete ones until `keep`
/// are left that are not of a later step (keep 0: deletes none). `state` must have no NaN or infinity: JSON has none.
/// Throws Error when something cannot be written; earlier checkpoints are then as they were and no part of this one
/// remains. Also throws when only what follows fails, the deletions; this checkpoint is then complete.
void write_checkpoint(const std::filesystem::path& run, std::int64_t step, const nlohmann::json& state,
                      std::span<const Segment> segments, std::int64_t keep);

/// Reads and verifies one checkpoint folder, every segment's size and checksum included. Throws Error naming the file
/// that is missing, foreign or damaged.
CheckpointInfo open_checkpoint(const std::filesystem::path& folder);

/// The complete checkpoint of the latest step, verified as by open_checkpoint. Whatever else lies in
/// <run>/checkpoints is left alone, and said to `on_skip` in a sentence.
std::optional<CheckpointInfo> newest_checkpoint(const std::filesystem::path& run,
                                                const std::function<void(const std::string& message)>& on_skip);

/// Passes a segment's contents on in consecutive parts. Throws Error when file and meta.json disagree on size or
/// checksum; the parts have been passed on by then.
void read_segment(const CheckpointInfo& checkpoint, const std::string& name,
                  const std::function<void(std::int64_t offset, std::span<const std::byte> part)>& sink);

/// A whole segment; also throws Error when `out` is not of its size.
void read_segment(const CheckpointInfo& checkpoint, const std::string& name, std::span<std::byte> out);

}  // namespace coda
