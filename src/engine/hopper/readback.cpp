#include "src/engine/hopper/readback.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/integers.h"
#include "kernels/hopper/sm90/check.h"

namespace coda {

namespace {

constexpr std::int64_t kAlignment = 8;

template <class T>
void append(const std::byte* from, std::int64_t count, std::vector<double>& values) {
    for (std::int64_t i = 0; i < count; ++i) {
        T value{};
        std::memcpy(&value, from + static_cast<std::size_t>(i) * sizeof value, sizeof value);
        values.push_back(static_cast<double>(value));
    }
}

void append(const View& view, const std::byte* from, std::vector<double>& values) {
    switch (view.dtype) {
        case DType::f64: return append<double>(from, view.count(), values);
        case DType::f32: return append<float>(from, view.count(), values);
        case DType::i32: return append<std::int32_t>(from, view.count(), values);
        default: throw Error(text("a value to be read cannot be ", name_of(view.dtype)));
    }
}

std::size_t room_of(const View& view) { return static_cast<std::size_t>(round_up(view.bytes(), kAlignment)); }

}  // namespace

class ReadbackPool::Pending : public Readback {
  public:
    Pending(ReadbackPool& pool, Slot slot, std::vector<View> views)
        : pool_(pool), slot_(slot), views_(std::move(views)) {}
    ~Pending() override {
        cudaEventSynchronize(slot_.arrived);
        pool_.spare_.push_back(slot_);
    }
    std::vector<double> wait() override {
        CUDA_CHECK(cudaEventSynchronize(slot_.arrived));
        std::vector<double> values;
        const std::byte* at = slot_.bytes;
        for (const View& view : views_) {
            append(view, at, values);
            at += room_of(view);
        }
        return values;
    }

  private:
    ReadbackPool& pool_;
    Slot slot_;
    std::vector<View> views_;
};

ReadbackPool::~ReadbackPool() {
    for (const Slot& slot : spare_) {
        cudaFreeHost(slot.bytes);
        cudaEventDestroy(slot.arrived);
    }
}

ReadbackPool::Slot ReadbackPool::slot_of(std::size_t bytes) {
    const auto fits = [bytes](const Slot& slot) { return slot.capacity >= bytes; };
    const auto spare = std::find_if(spare_.begin(), spare_.end(), fits);
    Slot slot;
    if (spare == spare_.end()) {
        CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&slot.bytes), bytes));
        CUDA_CHECK(cudaEventCreateWithFlags(&slot.arrived, cudaEventDisableTiming));
        slot.capacity = bytes;
    } else {
        slot = *spare;
        spare_.erase(spare);
    }
    return slot;
}

std::unique_ptr<Readback> ReadbackPool::read(const std::vector<View>& views, const Memory& memory,
                                             cudaStream_t stream) {
    std::size_t bytes = 0;
    for (const View& view : views) bytes += room_of(view);
    const Slot slot = slot_of(bytes);
    std::byte* at = slot.bytes;
    for (const View& view : views) {
        CUDA_CHECK(cudaMemcpyAsync(at, memory.address(view), static_cast<std::size_t>(view.bytes()),
                                   cudaMemcpyDeviceToHost, stream));
        at += room_of(view);
    }
    CUDA_CHECK(cudaEventRecord(slot.arrived, stream));
    return std::make_unique<Pending>(*this, slot, views);
}

}  // namespace coda
