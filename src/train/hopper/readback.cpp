#include "src/train/hopper/readback.h"

#include <cstring>

#include "kernels/hopper/sm90/check.h"

namespace coda {

namespace {

constexpr std::size_t kCells = 8;

template <class T>
double read_as(const double* cell) {
    T value{};
    std::memcpy(&value, cell, sizeof value);
    return static_cast<double>(value);
}

double value_of(DType dtype, const double* cell) {
    switch (dtype) {
        case DType::f64: return read_as<double>(cell);
        case DType::f32: return read_as<float>(cell);
        case DType::i32: return read_as<std::int32_t>(cell);
        default: throw Error(text("a scalar cannot be ", name_of(dtype)));
    }
}

}  // namespace

class ReadbackPool::Pending : public Readback {
  public:
    Pending(ReadbackPool& pool, Slot slot, std::vector<DType> dtypes)
        : pool_(pool), slot_(slot), dtypes_(std::move(dtypes)) {}
    ~Pending() override {
        cudaEventSynchronize(slot_.arrived);
        pool_.spare_.push_back(slot_);
    }
    std::vector<double> wait() override {
        CUDA_CHECK(cudaEventSynchronize(slot_.arrived));
        std::vector<double> values;
        for (std::size_t i = 0; i < dtypes_.size(); ++i) values.push_back(value_of(dtypes_[i], slot_.values + i));
        return values;
    }

  private:
    ReadbackPool& pool_;
    Slot slot_;
    std::vector<DType> dtypes_;
};

ReadbackPool::~ReadbackPool() {
    for (const Slot& slot : spare_) {
        cudaFreeHost(slot.values);
        cudaEventDestroy(slot.arrived);
    }
}

std::unique_ptr<Readback> ReadbackPool::read(const std::vector<View>& views, const Memory& memory,
                                             cudaStream_t stream) {
    require(views.size() <= kCells, "at most ", kCells, " scalars are read at a time, not ", views.size());
    Slot slot;
    if (spare_.empty()) {
        CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&slot.values), kCells * sizeof(double)));
        CUDA_CHECK(cudaEventCreateWithFlags(&slot.arrived, cudaEventDisableTiming));
    } else {
        slot = spare_.back();
        spare_.pop_back();
    }
    std::vector<DType> dtypes;
    for (std::size_t i = 0; i < views.size(); ++i) {
        require(views[i].count() == 1, "a view of ", views[i].count(), " elements is not a scalar");
        CUDA_CHECK(cudaMemcpyAsync(slot.values + i, memory.address(views[i]),
                                   static_cast<std::size_t>(size_of(views[i].dtype)), cudaMemcpyDeviceToHost, stream));
        dtypes.push_back(views[i].dtype);
    }
    CUDA_CHECK(cudaEventRecord(slot.arrived, stream));
    return std::make_unique<Pending>(*this, slot, std::move(dtypes));
}

}  // namespace coda
