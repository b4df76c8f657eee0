// Faults of the operating system, made to order.
//
// faults.cpp defines the system calls that change files (open with O_CREAT, write, fsync, ftruncate, rename, renameat2,
// mkdir) for the whole test program, in front of the C library's. They do their work, but fsync only notes what is
// durable, and while a Faults object lives they are counted, traced, and can fail or kill the process at a chosen call.
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

    /// Call number `call` kills the process with SIGKILL; a write has then written half its bytes. As after a power
    /// failure, files written since their last fsync lose their contents.
    void kill_at(std::int64_t call);

    /// write(2) takes at most this many bytes at once.
    void limit_writes(std::int64_t bytes);

    /// renameat2(2) is not supported: EINVAL.
    void no_exchange();

    /// The calls so far: the operation and its path, two paths for renames.
    const std::vector<std::string>& calls() const;
};

}  // namespace coda
