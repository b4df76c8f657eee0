#include "src/engine/rank_memory.h"

#include <cuda_runtime.h>

#include <array>

#include "kernels/hopper/sm90/check.h"
#include "src/engine/hopper/device_arena.h"

namespace coda {

namespace {

class GpuMemory : public RankMemory {
  public:
    explicit GpuMemory(std::int64_t bytes) : arena_("the memory of a rank", bytes) {
        CUDA_CHECK(cudaMemset(arena_.base(), 0, static_cast<std::size_t>(bytes)));
        CUDA_CHECK(cudaDeviceSynchronize());  // streams of executors do not wait for the default stream
        for (cudaEvent_t& mark : marks_) CUDA_CHECK(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming));
    }
    ~GpuMemory() override {
        cudaDeviceSynchronize();
        for (const cudaEvent_t mark : marks_) cudaEventDestroy(mark);
    }

    std::byte* base() const override { return arena_.base(); }
    void set(Mark mark, cudaStream_t stream) override { CUDA_CHECK(cudaEventRecord(event(mark), stream)); }
    void wait(Mark mark, cudaStream_t stream) const override { CUDA_CHECK(cudaStreamWaitEvent(stream, event(mark))); }
    void copy(std::byte* to, const std::byte* from, std::int64_t bytes, cudaStream_t stream) override {
        CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream));
    }

  private:
    cudaEvent_t event(Mark mark) const { return marks_.at(static_cast<std::size_t>(mark)); }

    DeviceArena arena_;
    std::array<cudaEvent_t, 2> marks_{};
};

}  // namespace

std::unique_ptr<RankMemory> make_gpu_memory(std::int64_t bytes) { return std::make_unique<GpuMemory>(bytes); }

}  // namespace coda
