#include <cstring>

#include "src/engine/host_arena.h"
#include "src/engine/rank_memory.h"

namespace coda {

namespace {

class HostMemory : public RankMemory {
  public:
    explicit HostMemory(std::int64_t bytes) : arena_(bytes) {}
    std::byte* base() const override { return arena_.base(); }
    void set(Mark, CUstream_st*) override {}
    void wait(Mark, CUstream_st*) const override {}
    void copy(std::byte* to, const std::byte* from, std::int64_t bytes, CUstream_st*) override {
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }

  private:
    HostArena arena_;
};

}  // namespace

std::unique_ptr<RankMemory> make_host_memory(std::int64_t bytes) { return std::make_unique<HostMemory>(bytes); }

}  // namespace coda
