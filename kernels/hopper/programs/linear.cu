// linear - a plain product, stored in bf16 or fp32, or added to what is there
//
//   out = acc  or  out += acc          (M, N)
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/gemm/launch.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/programs/programs.h"
#include "kernels/hopper/programs/scaled_store.cuh"

namespace coda::hopper {

namespace {

struct NoArguments {};

struct StoreBf16 : EpilogueProgram {
    using Slot = hopper::Slot<64, Panel{128}>;
    using Arguments = NoArguments;

    TileStore<Slot, 0> out;

    __device__ explicit StoreBf16(const Arguments&) {}
    __device__ void visit(float2 acc, const Here& at) { out.put(at, acc); }
};

struct AddBf16 : EpilogueProgram {
    using Slot = hopper::Slot<64, Panel{128}>;
    using Arguments = NoArguments;

    TileLoad<Slot, 0> before;
    TileStore<Slot, 0> out;

    __device__ explicit AddBf16(const Arguments&) {}
    __device__ void fetch(const Here& at) { before.fetch(at); }
    __device__ void visit(float2 acc, const Here& at) {
        const float2 old = before[at];
        out.put(at, {old.x + acc.x, old.y + acc.y});
    }
};

template <class Program, class... Candidates>
Launch launch(const Problem& problem, const Memory& memory, WeightLayout layout, const Tiles<Program>& operands,
              const GemmChoice& choice) {
    return layout == WeightLayout::out_in
               ? launch_quickest<Program, Major::k, Major::k, Candidates...>(problem, memory, operands, {}, choice)
               : launch_quickest<Program, Major::k, Major::mn, Candidates...>(problem, memory, operands, {}, choice);
}

}  // namespace

Launch prepare_op(const Linear& op, const Memory& memory, const GemmChoice& choice) {
    const Problem problem = linear_problem(op.name, op.a, op.w, op.layout);
    require_shape(problem, "out", op.out, problem.m, problem.n, op.out.dtype);
    const bool accumulate = op.out.beta == Beta::accumulate;
    if (op.out.dtype == DType::f32)
        return launch<ScaledStore, tiles::Wide>(problem, memory, op.layout, {{}, {op.out}, accumulate ? 1u : 0u},
                                                choice);
    if (accumulate) return launch<AddBf16, tiles::InPlace>(problem, memory, op.layout, {{op.out}, {op.out}}, choice);
    return launch<StoreBf16, tiles::Wide, tiles::Tall, tiles::Medium, tiles::Square, tiles::ThreeBlocks>(
        problem, memory, op.layout, {{}, {op.out}}, choice);
}

}  // namespace coda::hopper
