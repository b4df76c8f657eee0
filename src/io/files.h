// Files as the formats need them: read in parts, written durably, replaced as a whole or not at all.
//
// Every function throws Error with the operation, the path and the system's reason ("write to X: No space left on
// device").
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernels/core/error.h"

namespace coda {

/// Throws the Error of an operation ("write to") that failed with this errno.
[[noreturn]] void throw_errno(const char* operation, const std::filesystem::path& path, int error);

/// The bytes of `text`, not copied.
inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// Descriptors that all FileReaders have together; a data set may have more files than a process may open.
inline constexpr int kMostOpenFiles = 256;

/// A regular file that is read in parts. It may be cut short while it is open: a read then fails, where the pages of a
/// mapped file would end the process with SIGBUS. So no file is mapped. With more than kMostOpenFiles readers, the file
/// that was not read for longest is closed, and opened again by its next read, which fails where another file has its
/// name by then.
class FileReader {
  public:
    explicit FileReader(std::filesystem::path path);
    ~FileReader();
    FileReader(FileReader&& other) noexcept;
    FileReader& operator=(FileReader&& other) noexcept;

    std::int64_t bytes() const;  // when it was opened first
    /// Fills `out` from `offset`. Any number of threads may read.
    void read_at(std::int64_t offset, std::span<std::byte> out) const;

    struct File;

  private:
    std::unique_ptr<File> file_;
};

/// A file being written through unbuffered write(2). Not durable until finish() returns.
class FileWriter {
  public:
    enum class Mode {
        create,
        append,
        update
    };  // create: the file must not exist; append: it is created if absent;
        // update: it must exist, and keeps what is not overwritten

    FileWriter(std::filesystem::path path, Mode mode);
    ~FileWriter();  // closes; what was written without finish() or sync() may be lost in a power failure
    FileWriter(FileWriter&& other) noexcept;
    FileWriter& operator=(FileWriter&& other) noexcept;

    /// Writes all of `bytes`, in one write(2) if the system takes them in one.
    void write(std::span<const std::byte> bytes);
    /// Writes all of `bytes` at `offset`; not in Mode::append. write() still appends at the end.
    void write_at(std::int64_t offset, std::span<const std::byte> bytes);
    void sync();    // fsync
    void finish();  // fsync and close
    void truncate(std::int64_t bytes);
    bool is_at_path() const;  // leads_to of its path
    /// What the file holds, also when nothing leads to it any more.
    std::string contents() const;
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
    int descriptor_ = -1;
};

/// Whether `path` leads to the file or folder that is open as `descriptor`: not after it was deleted, moved or
/// replaced.
bool leads_to(const std::filesystem::path& path, int descriptor);

/// Whether there is a file or folder; false where that cannot be found out.
bool is_there(const std::filesystem::path& path);

/// Whether anything has this name, also a link that leads nowhere. False if that cannot be found out.
bool is_name_taken(const std::filesystem::path& path);

/// The whole file as text.
std::string read_file(const std::filesystem::path& path);

/// Makes the names within `folder` durable: fsync of the folder.
void sync_folder(const std::filesystem::path& folder);

/// mkdir -p, durable.
void make_folders(const std::filesystem::path& folder);

/// rename(2): replaces `to` when it is a file or an empty folder. Durable after sync_folder of the parent.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

/// The two paths trade names in one step. Returns false, and does nothing, where the file system cannot do that.
bool exchange_paths(const std::filesystem::path& one, const std::filesystem::path& other);

/// How the names of folders begin that are being written or deleted; nobody reads such folders.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";

/// Moves the finished folder `from` to `to`. An earlier `to` is exchanged for it in one step if the file system can do
/// that. Otherwise it is renamed away first, and back if the move fails. Either way it then has a temporary name next
/// to `to`, which is returned. Without an earlier one the result is empty. Durable after sync_folder of the parent.
std::filesystem::path publish_folder(const std::filesystem::path& from, const std::filesystem::path& to);

/// The name under which the file `path` is written before it gets its own: "PATH.new".
std::filesystem::path aside_of(const std::filesystem::path& path);

/// A file that is written as aside_of(path). `path` is as it was until finish(), which replaces it durably; without
/// finish() nothing stays.
class ReplacedFile {
  public:
    explicit ReplacedFile(std::filesystem::path path);
    ~ReplacedFile();
    ReplacedFile(const ReplacedFile&) = delete;
    ReplacedFile& operator=(const ReplacedFile&) = delete;

    void write(std::span<const std::byte> bytes) { writer_.write(bytes); }
    void finish();

  private:
    std::filesystem::path path_;
    FileWriter writer_;
    bool renamed_ = false;
};

/// Afterwards `path` durably holds `bytes`, or is as it was.
void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace coda
