#include "src/io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "src/io/files.h"

namespace coda {

std::shared_ptr<const FolderLock> FolderLock::take(const std::filesystem::path& folder, int operation) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return nullptr;
    std::shared_ptr<const FolderLock> lock(new FolderLock(descriptor));
    if (::flock(descriptor, operation) != 0 && errno == EWOULDBLOCK) return nullptr;
    // It may have been renamed, to be deleted, between open and flock.
    return leads_to(folder, descriptor) ? lock : nullptr;
}

std::shared_ptr<const FolderLock> FolderLock::shared(const std::filesystem::path& folder) {
    return take(folder, LOCK_SH);
}

std::shared_ptr<const FolderLock> FolderLock::exclusive(const std::filesystem::path& folder) {
    return take(folder, LOCK_EX | LOCK_NB);
}

FolderLock::~FolderLock() { ::close(descriptor_); }

}  // namespace coda
