// The memory of a rank whose peers are threads of the same process, on the host or on one GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

struct CUstream_st;

namespace coda {

class RankMemory {
  public:
    /// What a rank says of its stream: that the others may read from it, and that it has read from them.
    enum class Mark { offered, taken };

    virtual ~RankMemory() = default;
    virtual std::byte* base() const = 0;

    /// All that `stream` has now comes before the mark. On the host it is done already.
    virtual void set(Mark mark, CUstream_st* stream) = 0;

    /// `stream` waits until it has come to the mark that this rank set last.
    virtual void wait(Mark mark, CUstream_st* stream) const = 0;

    virtual void copy(std::byte* to, const std::byte* from, std::int64_t bytes, CUstream_st* stream) = 0;
};

std::unique_ptr<RankMemory> make_host_memory(std::int64_t bytes);

/// On the current GPU. Throws Error if a build has no kernels, or the GPU has no such memory.
std::unique_ptr<RankMemory> make_gpu_memory(std::int64_t bytes);

}  // namespace coda
