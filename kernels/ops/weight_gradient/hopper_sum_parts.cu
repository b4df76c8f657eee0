// sum_parts - adds the parts of a wgrad, in order, so that the bits are the same every time
#include "kernels/ops/weight_gradient/sum_parts.h"

#include <cstdint>

#include "kernels/core/error.h"
#include "kernels/core/integers.h"
#include "kernels/hopper/ptx/dependent_launch.cuh"
#include "kernels/hopper/sm90/overlapped_launch.h"

namespace coda::hopper {

namespace {

struct Parts {
    const float4* first;      // (parts, part_rows, columns)
    std::int64_t part_quads;  // quads of columns from a part to the next
    int count;
};

/// grad (+)= Σ parts, with four columns per thread.
__global__ void sum_parts_kernel(float4* grad, std::int64_t rows, std::int64_t quads, std::int64_t pitch,
                                 bool accumulate, Parts parts) {
    ptx::wait_on_dependencies();
    ptx::launch_dependents();
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= rows * quads) return;
    float4* out = grad + index / quads * pitch + index % quads;
    float4 sum = accumulate ? *out : float4{};
    for (int part = 0; part < parts.count; ++part) {
        const float4 value = parts.first[part * parts.part_quads + index];
        sum = {sum.x + value.x, sum.y + value.y, sum.z + value.z, sum.w + value.w};
    }
    *out = sum;
}

}  // namespace

Launch sum_parts(const Problem& problem, const Plan& plan, const View& grad, bool accumulate, const View& parts,
                 const Memory& memory) {
    auto* out = reinterpret_cast<float4*>(memory.address(grad));
    require(reinterpret_cast<std::uintptr_t>(out) % sizeof(float4) == 0 && grad.ld % 4 == 0, problem.op,
            ": grad must start at, and have rows of, multiples of 16 bytes");
    const std::int64_t rows = problem.m, quads = problem.n / 4, pitch = grad.ld / 4;
    const Parts given{reinterpret_cast<const float4*>(memory.address(parts)), plan.split_rows * quads,
                      static_cast<int>(plan.splits)};
    return [=](Stream stream) {
        constexpr int kThreadsOfSum = 256;
        launch_overlapped(sum_parts_kernel, static_cast<unsigned>(ceil_div(rows * quads, kThreadsOfSum)), kThreadsOfSum,
                          0, stream, out, rows, quads, pitch, accumulate, given);
    };
}

}  // namespace coda::hopper
