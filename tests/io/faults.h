// Faults of the operating system on demand.
//
// faults.cpp defines the system calls that change files (open with O_CREAT, write, fsync, ftruncate, rename, renameat2,
// mkdir) for the whole test program, in front of the C library's. They do their work, except that fsync only notes what
// is durable. While a Faults object lives, the calls are counted and traced, and a chosen one can fail or kill the
// process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coda {

class Faults {
  public:
    Faults();
    ~Faults();
    Faults(const Faults&) = delete;
    Faults& operator=(const Faults&) = delete;

    /// Call number `call`, counted from 0, fails with `error` and does nothing.
    void fail_at(std::int64_t call, int error);

    /// Call number `call` kills the process with SIGKILL. If it is a write, half of its bytes have been written. As
    /// after a power failure, files written since their last fsync lose their contents.
    void kill_at(std::int64_t call);

    /// write(2) takes at most this many bytes per call.
    void limit_writes(std::int64_t bytes);

    /// renameat2(2) fails as on a file system that does not support it: EINVAL.
    void no_exchange();

    /// The calls so far: the operation and its path, or two paths for renames.
    const std::vector<std::string>& calls() const;
};

}  // namespace coda
