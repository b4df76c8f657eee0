// Memory of the host for an arena.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/core/error.h"

namespace coda {

/// Zeroed pages from the system: 4 KiB aligned, touched only when first written.
class HostArena {
  public:
    explicit HostArena(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
        void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        require(memory != MAP_FAILED, "cannot reserve ", bytes, " bytes of memory");
        base_ = static_cast<std::byte*>(memory);
    }
    HostArena(HostArena&& other) noexcept : bytes_(other.bytes_), base_(std::exchange(other.base_, nullptr)) {}
    ~HostArena() {
        if (base_) munmap(base_, bytes_);
    }
    HostArena(const HostArena&) = delete;
    HostArena& operator=(const HostArena&) = delete;

    std::byte* base() const { return base_; }

  private:
    std::size_t bytes_;
    std::byte* base_;
};

}  // namespace coda
