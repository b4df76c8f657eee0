#include "src/engine/hopper/readback.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/integers.h"
#include "kernels/hopper/sm90/check.h"
#include "src/engine/hopper/wait.h"

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
    Pending(ReadbackPool& pool, Buffer buffer, std::vector<View> views)
        : pool_(pool), buffer_(buffer), views_(std::move(views)) {}
    ~Pending() override {
        cudaEventSynchronize(buffer_.arrived);
        pool_.spare_.push_back(buffer_);
    }
    std::vector<double> wait() override {
        wait_for(buffer_.arrived, pool_.for_ranks_);
        std::vector<double> values;
        const std::byte* at = buffer_.bytes;
        for (const View& view : views_) {
            append(view, at, values);
            at += room_of(view);
        }
        return values;
    }

  private:
    ReadbackPool& pool_;
    Buffer buffer_;
    std::vector<View> views_;
};

ReadbackPool::~ReadbackPool() {
    for (const Buffer& buffer : spare_) {
        cudaFreeHost(buffer.bytes);
        cudaEventDestroy(buffer.arrived);
    }
}

ReadbackPool::Buffer ReadbackPool::buffer_of(std::size_t bytes) {
    const auto fits = [bytes](const Buffer& buffer) { return buffer.capacity >= bytes; };
    const auto spare = std::find_if(spare_.begin(), spare_.end(), fits);
    Buffer buffer;
    if (spare == spare_.end()) {
        CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&buffer.bytes), bytes));
        CUDA_CHECK(cudaEventCreateWithFlags(&buffer.arrived, cudaEventDisableTiming));
        buffer.capacity = bytes;
    } else {
        buffer = *spare;
        spare_.erase(spare);
    }
    return buffer;
}

std::unique_ptr<Readback> ReadbackPool::read(const std::vector<View>& views, const Memory& memory,
                                             cudaStream_t stream) {
    std::size_t bytes = 0;
    for (const View& view : views) bytes += room_of(view);
    const Buffer buffer = buffer_of(bytes);
    std::byte* at = buffer.bytes;
    for (const View& view : views) {
        CUDA_CHECK(cudaMemcpyAsync(at, memory.address(view), static_cast<std::size_t>(view.bytes()),
                                   cudaMemcpyDeviceToHost, stream));
        at += room_of(view);
    }
    CUDA_CHECK(cudaEventRecord(buffer.arrived, stream));
    return std::make_unique<Pending>(*this, buffer, views);
}

}  // namespace coda
