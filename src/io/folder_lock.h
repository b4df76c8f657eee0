// Who uses a checkpoint's folder: readers together, or the one that writes or deletes it.
//
// The lock is flock(2) on the folder itself, so it writes nothing and ends with its process. Where the file system has
// no locks on folders, every lock is given.
#pragma once

#include <filesystem>
#include <memory>

namespace coda {

class FolderLock {
  public:
    /// For readers. Waits for an exclusive lock to end. Null when the folder is gone then.
    static std::shared_ptr<const FolderLock> shared(const std::filesystem::path& folder);
    /// For the one that writes or deletes the folder. Null when somebody else uses it, or it is gone.
    static std::shared_ptr<const FolderLock> exclusive(const std::filesystem::path& folder);

    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

  private:
    explicit FolderLock(int descriptor) : descriptor_(descriptor) {}
    static std::shared_ptr<const FolderLock> take(const std::filesystem::path& folder, int operation);

    int descriptor_;
};

}  // namespace coda
