// weight_gradient - the gradient of a linear layer's weight, accumulated in fp32
//
//   grad (+)= alpha dyᵀ x ⊙ gamma      (out, in), summed over all tokens
//
// Both operands are read as they lie in memory, with K (the tokens) along their rows: MN-major. A small gradient has
// fewer tiles than the GPU has SMs, so its sum over tokens is cut into parts (kernels/tiling.h says into how many):
// each part's product goes to scratch, and a second kernel adds them in order, so that the bits are the same every
// time.
#include "kernels/hopper/gemm/launch.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/programs/programs.h"
#include "kernels/hopper/programs/scaled_store.cuh"
#include "kernels/hopper/ptx/dependent_launch.cuh"

namespace coda::hopper {

namespace {

struct Parts {
    const float4* first;      // (parts, part_rows, columns)
    std::int64_t part_quads;  // quads of columns from a part to the next
    int count;
};

/// grad (+)= Σ parts, four columns a thread.
__global__ void sum_parts(float4* grad, std::int64_t rows, std::int64_t quads, std::int64_t pitch, bool accumulate,
                          Parts parts) {
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

Launch launch_sum(const Problem& problem, const View& grad, bool accumulate, const View& parts, const Memory& memory) {
    auto* out = reinterpret_cast<float4*>(memory.address(grad));
    require(reinterpret_cast<std::uintptr_t>(out) % sizeof(float4) == 0 && grad.ld % 4 == 0, problem.op,
            ": grad must start at, and have rows of, multiples of 16 bytes");
    const std::int64_t rows = problem.m, quads = problem.n / 4, pitch = grad.ld / 4;
    const Parts given{reinterpret_cast<const float4*>(memory.address(parts)), problem.split_rows * quads,
                      static_cast<int>(problem.splits)};
    return [=](Stream stream) {
        constexpr int kThreadsOfSum = 256;
        cudaLaunchAttribute overlap{};
        overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        overlap.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(static_cast<unsigned>(ceil_div(rows * quads, kThreadsOfSum)));
        config.blockDim = dim3(kThreadsOfSum);
        config.stream = stream;
        config.attrs = &overlap;
        config.numAttrs = 1;
        CUDA_CHECK(cudaLaunchKernelEx(&config, sum_parts, out, rows, quads, pitch, accumulate, given));
    };
}

}  // namespace

Launch prepare_op(const WeightGradient& op, const Memory& memory, const GemmChoice& choice) {
    Problem problem = weight_gradient_problem(op.name, op.dy, op.x);
    require_shape(problem, "grad", op.grad, problem.m, problem.n, DType::f32);
    const bool accumulate = op.grad.beta == Beta::accumulate;
    if (op.gamma) require_shape(problem, "gamma", op.gamma, 1, problem.n, DType::f32);
    const ScaledStore::Arguments arguments{memory.at<float>(op.alpha), memory.at<float>(op.gamma)};

    const std::int64_t parts = op.scratch ? tiling::gradient_parts(op) : 1;
    if (parts == 1 || choice.candidate >= 0 || choice.list != nullptr)
        return launch_quickest<ScaledStore, Major::mn, Major::mn, tiles::GradientWide, tiles::GradientNarrow>(
            problem, memory, {{}, {op.grad}, accumulate ? 1u : 0u}, arguments, choice);

    const std::int64_t bytes = tiling::scratch_bytes(op);
    require(op.scratch.cols >= bytes, op.name, ": scratch has ", op.scratch.cols, " bytes, needs ", bytes);
    problem.splits = parts;
    problem.split_rows = tiling::gradient_part_rows(op);
    static_assert(tiles::GradientWide::config.cluster_rows() == 256, "the planner pads a part's rows to 256");
    const View sums{op.scratch.buffer, DType::f32, op.scratch.offset, parts * problem.split_rows, problem.n,
                    problem.n,         0};
    const Launch products = launch_gemm<ScaledStore, tiles::GradientWide, Major::mn, Major::mn>(
        problem, memory, {{}, {sums}}, arguments, choice);
    const Launch sum = launch_sum(problem, op.grad, accumulate, sums, memory);
    return [products, sum](Stream stream) {
        products(stream);
        sum(stream);
    };
}

}  // namespace coda::hopper
