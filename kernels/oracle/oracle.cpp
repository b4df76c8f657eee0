#include "kernels/oracle/oracle.h"

#include <cuda_runtime.h>

#include <cstring>

#include "kernels/hopper/sm90/check.h"
#include "kernels/oracle/op_check.h"

namespace coda::oracle {

namespace {

bool share_bytes(const View& a, const View& b) {
    return a.buffer == b.buffer && a.offset < b.offset + b.span_bytes() && b.offset < a.offset + a.span_bytes();
}

/// Scratch means nothing before and after an op.
bool is_scratch(const char* operand) { return std::strcmp(operand, "scratch") == 0; }

/// fn(field name, view) for every operand that the op reads and overwrites.
template <class Fn>
void for_each_overwritten(const Op& op, const Fn& fn) {
    for_each_operand(op, [&](const char* operand, const View& view, Access access) {
        bool overwritten = access == Access::inout;
        if (access == Access::in)
            for_each_operand(op, [&](const char*, const View& other, Access how) {
                overwritten = overwritten || (how != Access::in && share_bytes(view, other));
            });
        if (overwritten && !is_scratch(operand)) fn(operand, view);
    });
}

std::shared_ptr<std::byte> allocate_copy(const Op& op, const char* operand, const View& view) {
    void* copy = nullptr;
    const auto bytes = static_cast<std::size_t>(view.bytes());
    const cudaError_t status = cudaMalloc(&copy, bytes);
    if (status == cudaErrorMemoryAllocation) {
        std::size_t free = 0, total = 0;
        cudaGetLastError();  // clears the error
        CUDA_CHECK(cudaMemGetInfo(&free, &total));
        throw Error(text("oracle: the copy of ", name_of(op), "'s ", operand, " from before its launch takes ", bytes,
                         " bytes, and ", free, " of ", total,
                         " bytes of device memory are free; check a smaller model or micro-batch"));
    }
    CUDA_CHECK(status);
    return {static_cast<std::byte*>(copy), cudaFree};
}

}  // namespace

struct Oracle::Resources {
    WorkSpace space;
};

Oracle::Oracle(std::int64_t work_bytes) : resources_(new Resources{WorkSpace(work_bytes)}) {}
Oracle::~Oracle() = default;

Capture Oracle::capture(const Op& op, const Memory& memory, hopper::Stream stream) {
    Capture capture;
    for_each_overwritten(op, [&](const char* operand, const View& view) {
        const auto copy = allocate_copy(op, operand, view);
        const auto row = static_cast<std::size_t>(view.cols * size_of(view.dtype));
        const auto pitch = static_cast<std::size_t>(view.ld * size_of(view.dtype));
        if (view.rows <= 1 || view.ld == view.cols) {
            CUDA_CHECK(cudaMemcpyAsync(copy.get(), memory.address(view), static_cast<std::size_t>(view.bytes()),
                                       cudaMemcpyDeviceToDevice, stream));
        } else {
            CUDA_CHECK(cudaMemcpy2DAsync(copy.get(), row, memory.address(view), pitch, row,
                                         static_cast<std::size_t>(view.rows), cudaMemcpyDeviceToDevice, stream));
        }
        capture.copies[operand] = copy;
    });
    CUDA_CHECK(cudaStreamSynchronize(stream));
    return capture;
}

Report Oracle::check(const Op& op, const Memory& memory, const Capture& before, hopper::Stream stream) {
    for_each_overwritten(op, [&](const char* operand, const View&) {
        require(before.copies.count(operand) == 1, name_of(op), ": operand ", operand,
                " was not captured before the launch");
    });
    OpCheck check(resources_->space, memory, before, stream);
    std::visit([&](const auto& concrete) { check_op(concrete, check); }, op);
    return {check.results()};
}

}  // namespace coda::oracle
