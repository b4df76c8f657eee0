// Runs one op on the GPU over copies of host buffers. A test reads, poisons and compares the same `Buffers` that it
// gives to cpu::run.
#pragma once

#include "kernels/hopper/run.h"
#include "tests/hopper/harness.h"
#include "tests/kernels/fixture.h"

namespace coda::test {

/// Device copies of the buffers of views, each of exactly its own size.
class GpuCopy {
  public:
    GpuCopy(Buffers& host, const std::vector<View>& views) : host_(host) {
        for (const View& view : views) {
            const auto id = static_cast<std::size_t>(view.buffer);
            bases_.resize(std::max(bases_.size(), id + 1), nullptr);
            sizes_.resize(bases_.size(), 0);
            if (bases_[id] != nullptr) continue;
            const std::string bits = host.bits(view);
            sizes_[id] = bits.size();
            void* memory = nullptr;
            CUDA_CHECK(cudaMalloc(&memory, bits.size()));
            bases_[id] = static_cast<std::byte*>(memory);
            CUDA_CHECK(cudaMemcpy(memory, bits.data(), bits.size(), cudaMemcpyHostToDevice));
        }
    }
    ~GpuCopy() {
        for (std::byte* base : bases_) cudaFree(base);
    }
    GpuCopy(const GpuCopy&) = delete;
    GpuCopy& operator=(const GpuCopy&) = delete;

    Memory memory() const { return Memory(bases_); }

    /// Waits for the GPU and overwrites the host's buffers with the device's.
    void download() {
        CUDA_CHECK(cudaDeviceSynchronize());
        for (std::size_t id = 0; id < bases_.size(); ++id) {
            if (bases_[id] == nullptr) continue;
            View first;
            first.buffer = static_cast<BufferId>(id);
            CUDA_CHECK(cudaMemcpy(host_.memory().address(first), bases_[id], sizes_[id], cudaMemcpyDeviceToHost));
        }
    }

  private:
    Buffers& host_;
    std::vector<std::byte*> bases_;
    std::vector<std::size_t> sizes_;
};

inline std::vector<View> operands_of(const Op& op) {
    std::vector<View> views;
    for_each_operand(op, [&](const char*, const View& view, Access) { views.push_back(view); });
    return views;
}

/// Runs `op` once on device copies of the buffers, which then hold the device's contents.
inline void run_on_gpu(const Op& op, Buffers& buffers) {
    GpuCopy copy(buffers, operands_of(op));
    hopper::prepare(op, copy.memory())(nullptr);
    copy.download();
}

/// The message of hopper::prepare for an op that it cannot run; "accepted" if it can.
inline std::string refusal(const Op& op, Buffers& buffers) {
    const GpuCopy copy(buffers, operands_of(op));
    try {
        hopper::prepare(op, copy.memory());
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

}  // namespace coda::test
