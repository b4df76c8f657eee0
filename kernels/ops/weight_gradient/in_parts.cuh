// choose and bind of a wgrad whose sum over tokens may be cut into parts (split.h: into how many, and in which tile).
// Each part's sum goes to scratch, and a second kernel adds the parts (sum_parts.h). Host.
#pragma once

#include "kernels/hopper/epilogue/scaled_store.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/ops/weight_gradient/op.h"
#include "kernels/ops/weight_gradient/split.h"
#include "kernels/ops/weight_gradient/sum_parts.h"

namespace coda::hopper {

template <class Kernels>
Plan choose_in_parts(const WeightGradient& op, const Problem& problem, const Request& request) {
    SplitLimits limits{.tile = request.candidate, .parts = request.splits};
    if (!op.scratch) {
        limits.scratch_bytes = 0;
    } else if (request.candidate >= 0 || request.splits > 0) {
        limits.scratch_bytes = op.scratch.cols;
    }
    const Split split = split_of(op, limits);
    require(request.splits == 0 || split.parts == request.splits, op.name, ": a sum over ", problem.k,
            " tokens cannot be cut into ", request.splits, " parts: there may be up to ", kMostParts, ", of ",
            kFewestKTiles * kPanelRowBytes / size_of(op.dy.dtype), " tokens or more, in ", limits.scratch_bytes,
            " bytes of scratch");
    Request wanted = request;
    wanted.candidate = split.tile;
    Plan plan = Kernels::choose(problem, wanted);
    plan.splits = split.parts;
    plan.split_rows = split.part_rows;
    plan.scratch_bytes = split.scratch_bytes;
    require(op.scratch.cols >= plan.scratch_bytes, op.name, ": scratch has ", op.scratch.cols, " bytes, needs ",
            plan.scratch_bytes);
    return plan;
}

template <class Kernels>
Launch bind_in_parts(const WeightGradient& op, const Problem& problem, const Plan& plan, const Memory& memory,
                     const ScaledStore::Arguments& arguments) {
    const bool accumulate = op.grad.beta == Beta::accumulate;
    if (plan.splits == 1) return Kernels::bind(problem, plan, memory, {{}, {op.grad}, accumulate ? 1u : 0u}, arguments);

    const View sums{op.scratch.buffer, DType::f32, op.scratch.offset, plan.splits * plan.split_rows, problem.n,
                    problem.n,         0};
    const Launch products = Kernels::bind(problem, plan, memory, {{}, {sums}}, arguments);
    const Launch sum = sum_parts(problem, plan, op.grad, accumulate, sums, memory);
    return [products, sum](Stream stream) {
        products(stream);
        sum(stream);
    };
}

}  // namespace coda::hopper
