#include "src/io/checkpoint.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "src/io/checksum.h"
#include "src/io/files.h"
#include "src/io/json_integer.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "segments are little-endian and written unchanged");

constexpr const char* kFormat = "coda_train checkpoint";
constexpr int kVersion = 2;  // 1 had no FP8 state; whoever knows only version 1 would continue without it
constexpr int kOldestVersion = 1;
constexpr const char* kMetaFile = "meta.json";
constexpr const char* kMarkerFile = "complete";
constexpr std::string_view kStepPrefix = "step_";

fs::path checkpoints_folder(const fs::path& run) { return run / "checkpoints"; }
fs::path segment_file(const fs::path& folder, const std::string& name) { return folder / (name + ".bin"); }

std::string folder_name(std::int64_t step) {
    const std::string digits = std::to_string(step);
    return std::string(kStepPrefix) + std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

/// The step in a checkpoint folder's name; nothing for any other name.
std::optional<std::int64_t> step_of(const fs::path& folder) {
    const std::string name = folder.filename().string();
    if (!name.starts_with(kStepPrefix)) return std::nullopt;
    std::int64_t step = -1;
    std::from_chars(name.data() + kStepPrefix.size(), name.data() + name.size(), step);
    if (step < 0 || name != folder_name(step)) return std::nullopt;
    return step;
}

bool is_temporary(const fs::path& path) { return path.filename().string().starts_with(kTemporaryPrefix); }

std::uint64_t from_hex(const std::string& digits) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    require(error == std::errc() && end == digits.data() + digits.size(), "'", digits, "' is not a checksum");
    return value;
}

/// The names in `folder`, temporary ones included; empty if there is no such folder.
std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code error;
    if (!fs::exists(folder, error) && !error) return found;
    fs::directory_iterator iterator(folder, error);
    require(!error, "read folder ", folder.string(), ": ", error.message());
    for (const auto& entry : iterator) found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
}

void remove_tree(const fs::path& path) {
    std::error_code error;
    fs::remove_all(path, error);
    require(!error, "delete ", path.string(), ": ", error.message());
}

void require_name(const std::string& segment) {
    const bool plain = std::all_of(segment.begin(), segment.end(), [](unsigned char letter) {
        return std::isalnum(letter) != 0 || letter == '_' || letter == '-' || letter == '.';
    });
    require(plain && !segment.empty(), "'", segment, "' cannot name a checkpoint segment");
}

template <class Named>
void require_names(const Named& segments) {
    std::set<std::string> seen;
    for (const auto& segment : segments) {
        require_name(segment.name);
        require(seen.insert(segment.name).second, "checkpoint segment '", segment.name, "' is given twice");
    }
}

void write_file(const fs::path& path, std::string_view contents) {
    FileWriter file(path, FileWriter::Mode::create);
    file.write(bytes_of(contents));
    file.finish();
}

json write_segment(const fs::path& folder, const Segment& segment) {
    FileWriter file(segment_file(folder, segment.name), FileWriter::Mode::create);
    Xxh64 hash;
    segment.stream([&](std::span<const std::byte> part) {
        hash.update(part);
        file.write(part);
    });
    file.finish();
    return {{"name", segment.name}, {"bytes", segment.bytes}, {"xxh64", hex(hash.digest())}};
}

/// `segments`: what meta.json says of each.
void write_marker(const fs::path& folder, std::int64_t step, const json& state, json segments) {
    json meta = {{"format", kFormat}, {"version", kVersion}, {"step", step}, {"state", state}};
    meta["segments"] = std::move(segments);
    const std::string contents = meta.dump(2) + "\n";
    write_file(folder / kMetaFile, contents);
    write_file(folder / kMarkerFile, hex(xxh64(bytes_of(contents))) + "\n");
    sync_folder(folder);
}

/// A writer has made the folder and may not have locked it yet.
bool holds_nothing(const fs::path& folder) {
    std::error_code gone;
    return fs::is_empty(folder, gone) || gone;
}

/// Removes the folders that interrupted writes and deletions have left.
void remove_temporaries(const fs::path& folder) {
    for (const fs::path& path : entries(folder))
        if (is_temporary(path)) remove_tree(path);
}

/// The part of meta.json that open_checkpoint returns; throws nlohmann's exceptions and Error.
CheckpointInfo parse_meta(const json& meta) {
    require(meta.at("format") == kFormat, "its format is ", meta.at("format").dump(), ", not \"", kFormat, "\"");
    const json& version = meta.at("version");
    require(version.is_number_integer() && version >= kOldestVersion && version <= kVersion, "its version is ",
            version.dump(), "; this program reads ", kOldestVersion, " to ", kVersion);
    CheckpointInfo info;
    info.step = integer_of(meta.at("step"), "its step");
    info.state = meta.at("state");
    for (const json& segment : meta.at("segments")) {
        info.segments.push_back({segment.at("name").get<std::string>(),
                                 integer_of(segment.at("bytes"), "the size of a segment"),
                                 from_hex(segment.at("xxh64").get<std::string>())});
        require_name(info.segments.back().name);  // it names a file of this folder and of no other
    }
    return info;
}

/// A checkpoint folder, checked by its marker, meta.json and the sizes of its segments; their contents are not read.
CheckpointInfo open_unverified(const fs::path& folder) {
    const fs::path meta_file = folder / kMetaFile;
    const std::string marker = read_file(folder / kMarkerFile);
    const std::string contents = read_file(meta_file);
    require(marker == hex(xxh64(bytes_of(contents))) + "\n", meta_file.string(),
            " is not the one that the checkpoint was completed with");
    CheckpointInfo info;
    try {
        info = parse_meta(json::parse(contents));
    } catch (const std::exception& error) {
        throw Error(text(meta_file.string(), " cannot be read: ", error.what()));
    }
    info.folder = folder;
    require(step_of(folder) == info.step, folder.string(), " holds the checkpoint of step ", info.step);
    for (const SegmentInfo& segment : info.segments) {
        const fs::path file = segment_file(folder, segment.name);
        std::error_code error;
        const auto size = fs::file_size(file, error);
        require(!error, "open ", file.string(), ": ", error.message());
        require(size == static_cast<std::uintmax_t>(segment.bytes), file.string(), " has ", size, " bytes where ",
                segment.bytes, " are expected");
    }
    return info;
}

/// Keeps the checkpoint of `step` and the keep - 1 latest complete ones before it.
void delete_oldest(const fs::path& folder, std::int64_t step, std::int64_t keep) {
    std::vector<std::pair<std::int64_t, fs::path>> complete;
    for (const fs::path& path : entries(folder)) {
        const auto found = step_of(path);
        if (!found || *found > step) continue;
        try {
            open_unverified(path);
            complete.emplace_back(*found, path);
        } catch (const Error&) {
            continue;  // neither counted nor deleted; newest_checkpoint names it
        }
    }
    std::sort(complete.begin(), complete.end());
    for (std::size_t kept = complete.size(), i = 0; kept > static_cast<std::size_t>(keep); --kept, ++i) {
        const auto lock = FolderLock::exclusive(complete[i].second);
        if (!lock) continue;
        const fs::path doomed = folder / text(kTemporaryPrefix, "deleted-", complete[i].second.filename().string());
        rename_path(complete[i].second, doomed);
        remove_tree(doomed);
    }
}

}  // namespace

Segment::Segment(std::string segment_name, std::span<const std::byte> contents)
    : name(std::move(segment_name)), bytes(static_cast<std::int64_t>(contents.size())), contents_(contents) {}

Segment::Segment(std::string segment_name, std::int64_t byte_count, Source source)
    : name(std::move(segment_name)), bytes(byte_count), source_(std::move(source)) {}

void Segment::stream(const std::function<void(std::span<const std::byte>)>& sink) const {
    std::vector<std::byte> staging(source_ ? static_cast<std::size_t>(std::min(bytes, kCheckpointChunk)) : 0);
    for (std::int64_t offset = 0; offset < bytes; offset += kCheckpointChunk) {
        const auto size = static_cast<std::size_t>(std::min(bytes - offset, kCheckpointChunk));
        if (!source_) {
            sink(contents_.subspan(static_cast<std::size_t>(offset), size));
            continue;
        }
        const std::span<std::byte> part(staging.data(), size);
        source_(offset, part);
        sink(part);
    }
}

const SegmentInfo& CheckpointInfo::segment(const std::string& name) const {
    const auto found = std::find_if(segments.begin(), segments.end(),
                                    [&](const SegmentInfo& candidate) { return candidate.name == name; });
    require(found != segments.end(), folder.string(), " has no segment '", name, "'");
    return *found;
}

namespace {

fs::path temporary_folder(const fs::path& run, std::int64_t step) {
    return checkpoints_folder(run) / text(kTemporaryPrefix, folder_name(step));
}

/// Makes the temporary folder, and locks it.
std::shared_ptr<const FolderLock> begin_folder(const fs::path& run, std::int64_t step) {
    const fs::path folder = checkpoints_folder(run), temporary = temporary_folder(run, step);
    make_folders(folder);
    remove_temporaries(folder);
    make_folders(temporary);
    return FolderLock::exclusive(temporary);
}

/// After it was published.
void end_folder(const fs::path& run, std::int64_t step, std::int64_t keep) {
    const fs::path folder = checkpoints_folder(run);
    sync_folder(folder);
    remove_temporaries(folder);
    if (keep > 0) delete_oldest(folder, step, keep);
}

/// What meta.json says of a segment that is in its file.
json written_segment(const fs::path& folder, const SegmentSize& segment) {
    const FileReader file(segment_file(folder, segment.name));
    std::vector<std::byte> part(static_cast<std::size_t>(std::min(segment.bytes, kCheckpointChunk)));
    Xxh64 hash;
    for (std::int64_t at = 0; at < segment.bytes; at += kCheckpointChunk) {
        const std::span read =
            std::span(part).first(static_cast<std::size_t>(std::min(kCheckpointChunk, segment.bytes - at)));
        file.read_at(at, read);
        hash.update(read);
    }
    return {{"name", segment.name}, {"bytes", segment.bytes}, {"xxh64", hex(hash.digest())}};
}

}  // namespace

CheckpointDraft::CheckpointDraft(fs::path run, std::int64_t step, std::vector<SegmentSize> segments)
    : run_(std::move(run)), temporary_(temporary_folder(run_, step)), step_(step), segments_(std::move(segments)) {
    require_names(segments_);
    being_written_ = begin_folder(run_, step);
    for (const SegmentSize& segment : segments_) {
        FileWriter file(segment_file(temporary_, segment.name), FileWriter::Mode::create);
        file.truncate(segment.bytes);
        file.finish();
    }
}

CheckpointDraft::~CheckpointDraft() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void CheckpointDraft::complete(const json& state, std::int64_t keep) {
    json segments = json::array();
    for (const SegmentSize& segment : segments_) segments.push_back(written_segment(temporary_, segment));
    write_marker(temporary_, step_, state, std::move(segments));
    publish_folder(temporary_, checkpoints_folder(run_) / folder_name(step_));
    temporary_.clear();
    being_written_.reset();
    end_folder(run_, step_, keep);
}

CheckpointPart::CheckpointPart(const fs::path& run, std::int64_t step, const std::string& segment)
    : file_(segment_file(temporary_folder(run, step), segment), FileWriter::Mode::update) {}

void write_checkpoint(const fs::path& run, std::int64_t step, const json& state, std::span<const Segment> segments,
                      std::int64_t keep) {
    const fs::path folder = checkpoints_folder(run), temporary = temporary_folder(run, step);
    require(step >= 0 && keep >= 0, "a checkpoint of step ", step, " with keep ", keep, " cannot be written");
    require_names(segments);
    try {
        const auto being_written = begin_folder(run, step);
        json written = json::array();
        for (const Segment& segment : segments) written.push_back(write_segment(temporary, segment));
        write_marker(temporary, step, state, std::move(written));
        publish_folder(temporary, folder / folder_name(step));
    } catch (const std::exception& error) {
        std::error_code ignored;
        fs::remove_all(temporary, ignored);
        throw Error(text("the checkpoint of step ", step, " was not written: ", error.what(),
                         "; earlier checkpoints are untouched"));
    }
    end_folder(run, step, keep);
}

CheckpointInfo open_checkpoint(const fs::path& folder) {
    auto in_use = FolderLock::shared(folder);
    CheckpointInfo info = open_unverified(folder);
    require(in_use != nullptr, folder.string(), " is being deleted");
    info.in_use = std::move(in_use);
    for (const SegmentInfo& segment : info.segments)
        read_segment(info, segment.name, [](std::int64_t, std::span<const std::byte>) {});
    return info;
}

std::optional<CheckpointInfo> newest_checkpoint(const fs::path& run,
                                                const std::function<void(const std::string&)>& on_skip) {
    std::vector<std::pair<std::int64_t, fs::path>> candidates;
    for (const fs::path& path : entries(checkpoints_folder(run))) {
        if (const auto step = step_of(path))
            candidates.emplace_back(*step, path);
        else if (is_temporary(path) && (holds_nothing(path) || !FolderLock::exclusive(path)))
            continue;  // it is being written or deleted, or is gone by now
        else if (is_temporary(path))
            on_skip(
                text("skipped ", path.string(), ": the rest of an interrupted write; the next checkpoint removes it"));
        else
            on_skip(text("skipped ", path.string(), ": not a checkpoint's name"));
    }
    std::sort(candidates.rbegin(), candidates.rend());
    bool changed = false;
    for (const auto& [step, path] : candidates) {
        try {
            return open_checkpoint(path);
        } catch (const Error& error) {
            // While it was looked at, the run may have written a newer one and deleted this.
            if (is_name_taken(path))
                on_skip(text("skipped checkpoint ", path.string(), ": ", error.what()));
            else
                changed = true;
        }
    }
    if (changed) return newest_checkpoint(run, on_skip);
    require(candidates.empty(), "--resume: none of the ", candidates.size(), " checkpoints in ",
            checkpoints_folder(run).string(), " can be read; nothing was changed. Restore one of them from a copy, or ",
            "start again with another output.directory");
    return std::nullopt;
}

FileReader segment_reader(const CheckpointInfo& checkpoint, const std::string& name) {
    const SegmentInfo& info = checkpoint.segment(name);
    const fs::path path = segment_file(checkpoint.folder, name);
    FileReader file(path);
    require(file.bytes() == info.bytes, path.string(), " has ", file.bytes(), " bytes where ", info.bytes,
            " are expected");
    return file;
}

void read_segment(const CheckpointInfo& checkpoint, const std::string& name,
                  const std::function<void(std::int64_t, std::span<const std::byte>)>& sink) {
    const SegmentInfo& info = checkpoint.segment(name);
    const fs::path path = segment_file(checkpoint.folder, name);
    const FileReader file = segment_reader(checkpoint, name);
    const std::int64_t size = info.bytes;
    std::vector<std::byte> chunk(static_cast<std::size_t>(std::min(size, kCheckpointChunk)));
    Xxh64 hash;
    for (std::int64_t offset = 0; offset < size; offset += kCheckpointChunk) {
        const std::span part =
            std::span(chunk).first(static_cast<std::size_t>(std::min(size - offset, kCheckpointChunk)));
        file.read_at(offset, part);
        hash.update(part);
        sink(offset, part);
    }
    require(hash.digest() == info.xxh64, path.string(), " is damaged: its checksum is ", hex(hash.digest()), " where ",
            hex(info.xxh64), " is expected");
}

void read_segment(const CheckpointInfo& checkpoint, const std::string& name, std::span<std::byte> out) {
    const SegmentInfo& info = checkpoint.segment(name);
    require(static_cast<std::int64_t>(out.size()) == info.bytes, checkpoint.folder.string(), ": segment '", name,
            "' has ", info.bytes, " bytes where ", out.size(), " are wanted; is it of another model?");
    read_segment(checkpoint, name, [out](std::int64_t offset, std::span<const std::byte> part) {
        std::memcpy(out.data() + offset, part.data(), part.size());
    });
}

}  // namespace coda
