// FileReader, and the descriptors that all readers share.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <mutex>
#include <utility>

#include "src/core/file_kind.h"
#include "src/io/files.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

/// An open descriptor, of which a read that is under way keeps a share when another reader takes its place.
class OpenFile {
  public:
    /// Anything but a regular file is refused before it is opened: a FIFO would hang.
    explicit OpenFile(const fs::path& path) {
        if (::stat(path.c_str(), &status_) != 0) throw_errno("open", path, errno);
        require(S_ISREG(status_.st_mode), "open ", path.string(), ": ", file_kind(fs::status(path).type()),
                ", not a regular file");
        descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (descriptor_ < 0) throw_errno("open", path, errno);
        if (::fstat(descriptor_, &status_) == 0) return;
        const int error = errno;
        ::close(descriptor_);
        throw_errno("stat", path, error);
    }
    ~OpenFile() { ::close(descriptor_); }
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;

    int descriptor() const { return descriptor_; }
    const struct stat& status() const { return status_; }

  private:
    int descriptor_ = -1;
    struct stat status_ {};
};

}  // namespace

struct FileReader::File {
    fs::path path;
    dev_t device = 0;
    ino_t inode = 0;
    std::int64_t bytes = 0;                       // when it was opened first
    std::shared_ptr<const OpenFile> open{};       // null: another reader has its place
    std::list<FileReader::File*>::iterator at{};  // in the order of use; valid while open
};

namespace {

/// The files that have a descriptor, the one that was read last first.
class OpenFiles {
  public:
    std::shared_ptr<const OpenFile> take(FileReader::File& file) {
        const std::lock_guard lock(mutex_);
        if (file.open) {
            order_.splice(order_.begin(), order_, file.at);
            return file.open;
        }
        auto open = std::make_shared<const OpenFile>(file.path);
        const struct stat& now = open->status();
        require(now.st_dev == file.device && now.st_ino == file.inode, "read ", file.path.string(),
                ": another file has its name since it was opened");
        add(file, std::move(open));
        return file.open;
    }

    void add_new(FileReader::File& file) {
        auto open = std::make_shared<const OpenFile>(file.path);
        file.device = open->status().st_dev;
        file.inode = open->status().st_ino;
        file.bytes = open->status().st_size;
        const std::lock_guard lock(mutex_);
        add(file, std::move(open));
    }

    void drop(FileReader::File& file) {
        const std::lock_guard lock(mutex_);
        if (!file.open) return;
        order_.erase(file.at);
        file.open.reset();
    }

  private:
    void add(FileReader::File& file, std::shared_ptr<const OpenFile> open) {
        order_.push_front(&file);
        file.at = order_.begin();
        file.open = std::move(open);
        if (order_.size() <= static_cast<std::size_t>(kMostOpenFiles)) return;
        order_.back()->open.reset();
        order_.pop_back();
    }

    std::mutex mutex_;
    std::list<FileReader::File*> order_;
};

OpenFiles& open_files() {
    static OpenFiles& files = *new OpenFiles;  // never destroyed: readers with static storage outlive other statics
    return files;
}

}  // namespace

FileReader::FileReader(fs::path path) : file_(std::make_unique<File>()) {
    file_->path = std::move(path);
    open_files().add_new(*file_);
}

FileReader::~FileReader() {
    if (file_) open_files().drop(*file_);
}

FileReader::FileReader(FileReader&& other) noexcept = default;

FileReader& FileReader::operator=(FileReader&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
}

std::int64_t FileReader::bytes() const { return file_->bytes; }

void FileReader::read_at(std::int64_t offset, std::span<std::byte> out) const {
    const std::shared_ptr<const OpenFile> open = open_files().take(*file_);
    while (!out.empty()) {
        const ssize_t got = ::pread(open->descriptor(), out.data(), out.size(), offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw_errno("read", file_->path, errno);
        require(got > 0, "read ", file_->path.string(), ": it ends at byte ", offset, " and had ", file_->bytes,
                " bytes when it was opened; was it cut short by another program?");
        out = out.subspan(static_cast<std::size_t>(got));
        offset += got;
    }
}

}  // namespace coda
