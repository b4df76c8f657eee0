// One writer per run: a lock on the run's folder, held as long as its process lives.
//
// The lock is flock(2) on the file "lock" of the folder, so the system releases it however the process ends. The file
// names the holder for the message that the next one gets:
//
//   {"pid": 4711, "host": "node7", "started": "2026-05-04T12:00:00Z", "command": "coda_train --config ..."}
//
// It is removed when the lock is released; a killed run leaves it, unlocked. Readers of checkpoints do not take it.
#pragma once

#include <filesystem>
#include <string>

namespace coda {

class RunLock {
  public:
    /// Makes `run`, the folder, if there is none, and locks it. Throws Error with the holder's pid, host and command
    /// when another process has it. If the file system has no locks, the run continues without one: see held().
    RunLock(std::filesystem::path run, std::string command);
    /// Releases the lock and removes its file, and the folders that it made if they are empty.
    ~RunLock();
    RunLock(const RunLock&) = delete;
    RunLock& operator=(const RunLock&) = delete;

    /// False where the file system cannot lock, as some network file systems.
    bool held() const { return descriptor_ >= 0; }

    /// Whether the folder is still the one that was locked: false after it was deleted, moved or replaced.
    bool intact() const;

    /// Locks the folder's name again, after it was lost. Throws as the constructor does.
    void renew();

  private:
    void acquire();
    void release();

    std::filesystem::path run_, made_;  // made_: the outermost folder that was made, or empty
    std::string command_;
    int descriptor_ = -1;
};

}  // namespace coda
