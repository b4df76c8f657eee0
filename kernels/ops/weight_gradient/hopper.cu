// weight_gradient - the wgrad of a linear layer, accumulated in fp32
//
//   grad (+)= alpha dyᵀ x ⊙ gamma      (out, in), summed over all tokens
//
// Both operands are read as they lie in memory, one row per k (a token): MN-major. A small gradient has fewer tiles
// than the GPU has SMs, so its sum over tokens is cut into parts (split.h: into how many, and in which tile). Each
// part's sum goes to scratch, and a second kernel adds the parts in order, so that the bits are the same every time.
// FP8 operands: hopper_f8.cu.
#include "kernels/hopper/epilogue/scaled_store.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/ptx/dependent_launch.cuh"
#include "kernels/hopper/sm90/overlapped_launch.h"
#include "kernels/ops/weight_gradient/op.h"
#include "kernels/ops/weight_gradient/split.h"

namespace coda::hopper {

namespace {

struct Parts {
    const float4* first;      // (parts, part_rows, columns)
    std::int64_t part_quads;  // quads of columns from a part to the next
    int count;
};

/// grad (+)= Σ parts, with four columns per thread.
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

Launch launch_sum(const Problem& problem, const Plan& plan, const View& grad, bool accumulate, const View& parts,
                  const Memory& memory) {
    auto* out = reinterpret_cast<float4*>(memory.address(grad));
    require(reinterpret_cast<std::uintptr_t>(out) % sizeof(float4) == 0 && grad.ld % 4 == 0, problem.op,
            ": grad must start at, and have rows of, multiples of 16 bytes");
    const std::int64_t rows = problem.m, quads = problem.n / 4, pitch = grad.ld / 4;
    const Parts given{reinterpret_cast<const float4*>(memory.address(parts)), plan.split_rows * quads,
                      static_cast<int>(plan.splits)};
    return [=](Stream stream) {
        constexpr int kThreadsOfSum = 256;
        launch_overlapped(sum_parts, static_cast<unsigned>(ceil_div(rows * quads, kThreadsOfSum)), kThreadsOfSum, 0,
                          stream, out, rows, quads, pitch, accumulate, given);
    };
}

template <class... Tiles>
using KernelsOf = Kernels<ScaledStore, Major::mn, Major::mn, Tiles...>;
using GradientKernels = OfGradientTiles<KernelsOf>;

Problem problem_of(const WeightGradient& op) {
    const Problem problem = weight_gradient_problem(op.name, op.dy, op.x);
    require_operand(op.name, "grad", op.grad, problem.m, problem.n, DType::f32);
    if (op.gamma) require_operand(op.name, "gamma", op.gamma, 1, problem.n, DType::f32);
    return problem;
}

}  // namespace

template <>
Plan choose(const WeightGradient& op, const Request& request) {
    const Problem problem = problem_of(op);
    SplitLimits limits{.tile = request.candidate, .parts = request.splits};
    if (!op.scratch) {
        limits.scratch_bytes = 0;
    } else if (request.candidate >= 0 || request.splits > 0) {
        limits.scratch_bytes = op.scratch.cols;
    }
    const Split split = split_of(op, limits);
    require(request.splits == 0 || split.parts == request.splits, op.name, ": a sum over ", problem.k,
            " tokens cannot be cut into ", request.splits, " parts: there may be up to 16, of 256 tokens or more, in ",
            limits.scratch_bytes, " bytes of scratch");
    Request wanted = request;
    wanted.candidate = split.tile;
    Plan plan = GradientKernels::choose(problem, wanted);
    plan.splits = split.parts;
    plan.split_rows = split.part_rows;
    plan.scratch_bytes = split.scratch_bytes;
    require(op.scratch.cols >= plan.scratch_bytes, op.name, ": scratch has ", op.scratch.cols, " bytes, needs ",
            plan.scratch_bytes);
    return plan;
}

template <>
Launch bind(const WeightGradient& op, const Plan& plan, const Memory& memory) {
    const Problem problem = problem_of(op);
    const bool accumulate = op.grad.beta == Beta::accumulate;
    const ScaledStore::Arguments arguments{memory.at<float>(op.alpha), memory.at<float>(op.gamma)};
    if (plan.splits == 1)
        return GradientKernels::bind(problem, plan, memory, {{}, {op.grad}, accumulate ? 1u : 0u}, arguments);

    const View sums{op.scratch.buffer, DType::f32, op.scratch.offset, plan.splits * plan.split_rows, problem.n,
                    problem.n,         0};
    const Launch products = GradientKernels::bind(problem, plan, memory, {{}, {sums}}, arguments);
    const Launch sum = launch_sum(problem, plan, op.grad, accumulate, sums, memory);
    return [products, sum](Stream stream) {
        products(stream);
        sum(stream);
    };
}

}  // namespace coda::hopper
