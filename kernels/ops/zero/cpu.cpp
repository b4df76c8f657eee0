// Zero on the CPU.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/execute.h"
#include "kernels/ops/zero/op.h"

namespace coda::cpu {

template <>
void execute(const Zero& op, const Memory& memory) {
    constexpr std::int64_t kBlock = 1 << 20;  // bytes
    require(static_cast<bool>(op.out), Zero::name, ": operand out is missing");
    require(op.out.rows <= 1 || op.out.ld >= op.out.cols, Zero::name, ": operand out has rows of ", op.out.cols,
            " elements that are ", op.out.ld, " apart");
    const std::int64_t row_bytes = op.out.cols * size_of(op.out.dtype);
    const std::int64_t pitch = op.out.ld * size_of(op.out.dtype);
    std::byte* out = memory.address(op.out);
#pragma omp parallel for collapse(2)
    for (std::int64_t row = 0; row < op.out.rows; ++row)
        for (std::int64_t first = 0; first < row_bytes; first += kBlock)
            std::memset(out + row * pitch + first, 0, static_cast<std::size_t>(std::min(kBlock, row_bytes - first)));
}

}  // namespace coda::cpu
