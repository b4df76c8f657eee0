#include "src/io/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace coda {
namespace {

namespace fs = std::filesystem;

/// A file descriptor closed at the end of its scope.
struct Descriptor {
    int value = -1;
    ~Descriptor() {
        if (value >= 0) ::close(value);
    }
};

/// aside_of(path), where nothing is: a run that was killed may have left a file there.
fs::path free_aside_of(const fs::path& path) {
    fs::path aside = aside_of(path);
    std::error_code ignored;
    fs::remove(aside, ignored);
    return aside;
}

}  // namespace

void throw_errno(const char* operation, const fs::path& path, int error) {
    throw Error(text(operation, " ", path.string(), ": ", std::generic_category().message(error)));
}

FileWriter::FileWriter(fs::path path, Mode mode) : path_(std::move(path)) {
    const int how = mode == Mode::create ? O_CREAT | O_EXCL : mode == Mode::append ? O_CREAT | O_APPEND : 0;
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | how, 0666);
    if (descriptor_ < 0) throw_errno(mode == Mode::update ? "open" : "create", path_, errno);
}

FileWriter::~FileWriter() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

void FileWriter::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) throw_errno("write to", path_, errno);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
}

void FileWriter::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) throw_errno("write to", path_, errno);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
        offset += written;
    }
}

void FileWriter::sync() {
    if (::fsync(descriptor_) != 0) throw_errno("sync", path_, errno);
}

void FileWriter::finish() {
    sync();
    if (::close(std::exchange(descriptor_, -1)) != 0) throw_errno("close", path_, errno);
}

void FileWriter::truncate(std::int64_t bytes) {
    if (::ftruncate(descriptor_, bytes) != 0) throw_errno("truncate", path_, errno);
}

bool FileWriter::is_at_path() const { return leads_to(path_, descriptor_); }

std::string FileWriter::contents() const { return read_file(text("/proc/self/fd/", descriptor_)); }

bool leads_to(const fs::path& path, int descriptor) {
    struct stat open {
    }, named{};
    return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
           open.st_ino == named.st_ino;
}

bool is_there(const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
}

bool is_name_taken(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(path, ignored));
}

std::string read_file(const fs::path& path) {
    const FileReader file(path);
    std::string contents(static_cast<std::size_t>(file.bytes()), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(contents)));
    return contents;
}

void sync_folder(const fs::path& folder) {
    const Descriptor opened{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (opened.value < 0) throw_errno("open", folder, errno);
    // EINVAL: some file systems cannot sync a folder.
    if (::fsync(opened.value) != 0 && errno != EINVAL) throw_errno("sync", folder, errno);
}

void make_folders(const fs::path& folder) {
    std::error_code error;
    if (fs::is_directory(folder, error)) return;
    const fs::path parent = fs::absolute(folder).parent_path();
    make_folders(parent);
    fs::create_directory(folder, error);
    if (error) throw Error(text("make folder ", folder.string(), ": ", error.message()));
    sync_folder(parent);
}

void rename_path(const fs::path& from, const fs::path& to) {
    if (std::rename(from.c_str(), to.c_str()) != 0) throw_errno("rename to", to, errno);
}

bool exchange_paths(const fs::path& one, const fs::path& other) {
    if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return true;
    if (errno == EINVAL || errno == ENOSYS) return false;
    throw_errno("exchange", one, errno);
}

fs::path publish_folder(const fs::path& from, const fs::path& to) {
    if (!is_name_taken(to)) {
        rename_path(from, to);
        return {};
    }
    if (exchange_paths(from, to)) return from;
    const fs::path away = to.parent_path() / text(kTemporaryPrefix, "replaced-", to.filename().string());
    rename_path(to, away);
    try {
        rename_path(from, to);
    } catch (...) {
        rename_path(away, to);
        throw;
    }
    return away;
}

fs::path aside_of(const fs::path& path) { return path.string() + ".new"; }

ReplacedFile::ReplacedFile(fs::path path)
    : path_(std::move(path)), writer_(free_aside_of(path_), FileWriter::Mode::create) {}

ReplacedFile::~ReplacedFile() {
    std::error_code ignored;
    if (!renamed_) fs::remove(writer_.path(), ignored);
}

void ReplacedFile::finish() {
    writer_.finish();
    rename_path(writer_.path(), path_);
    renamed_ = true;
    sync_folder(fs::absolute(path_).parent_path());
}

void replace_file(const fs::path& path, std::span<const std::byte> bytes) {
    ReplacedFile file(path);
    file.write(bytes);
    file.finish();
}

}  // namespace coda
