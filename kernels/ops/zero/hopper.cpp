// Zero - out = 0, by cudaMemsetAsync, which a graph captures as a memset node.
#include <cuda_runtime.h>

#include "kernels/hopper/plan.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/ops/zero/op.h"

namespace coda::hopper {

template <>
Launch bind(const Zero& op, const Plan&, const Memory& memory) {
    require(static_cast<bool>(op.out), op.name, ": operand out is missing");
    require(op.out.rows <= 1 || op.out.ld >= op.out.cols, op.name, ": operand out has rows of ", op.out.cols,
            " elements that are ", op.out.ld, " apart");
    std::byte* out = memory.address(op.out);
    const auto rows = static_cast<std::size_t>(op.out.rows);
    const auto width = static_cast<std::size_t>(op.out.cols * size_of(op.out.dtype));
    const auto pitch = static_cast<std::size_t>(op.out.ld * size_of(op.out.dtype));
    if (rows <= 1 || width == pitch)
        return [=](Stream stream) { CUDA_CHECK(cudaMemsetAsync(out, 0, rows * width, stream)); };
    return [=](Stream stream) { CUDA_CHECK(cudaMemset2DAsync(out, pitch, 0, width, rows, stream)); };
}

template <>
Plan choose(const Zero& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
