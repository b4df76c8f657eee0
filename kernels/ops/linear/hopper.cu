// linear - a plain product, stored in bf16 or fp32, or added to what is there; or of rows that still lack their norm's
// 1/rms (K5)
//
//   out = acc  or  out += acc          (M, N)
//   out = acc rstd                     (M, N) bf16; rstd is one factor per row, so it commutes with the product
#include "kernels/hopper/epilogue/scaled_store.cuh"
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/launch.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/hopper/programs/programs.h"

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

struct Rstd : EpilogueProgram {
    using Slot = hopper::Slot<64, Panel{128}>;
    struct Arguments {
        const float* rstd;  // (M)
    };

    const Arguments& arguments;
    ColumnVector rstd;
    TileStore<Slot, 0> out;

    __device__ explicit Rstd(const Arguments& given) : arguments(given) {}
    __device__ void begin_rows(const Rows& rows) { rstd.begin_rows(rows, arguments.rstd, 0); }
    __device__ void visit(float2 acc, const Here& at) { out.put(at, {acc.x * rstd[at], acc.y * rstd[at]}); }
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
    if (op.rstd) {
        require_shape(problem, "rstd", op.rstd, 1, problem.m, DType::f32);
        require(op.layout == WeightLayout::out_in && op.out.dtype == DType::bf16 && !accumulate, op.name,
                ": with rstd, Hopper kernels take w as (N, K) and overwrite a bf16 out");
        return launch_quickest<Rstd, Major::k, Major::k, tiles::Medium, tiles::Square>(
            problem, memory, {{}, {op.out}}, {memory.at<float>(op.rstd)}, choice);
    }
    if (op.out.dtype == DType::f32)
        return launch<ScaledStore, tiles::Wide>(problem, memory, op.layout, {{}, {op.out}, accumulate ? 1u : 0u},
                                                choice);
    if (accumulate) return launch<AddBf16, tiles::InPlace>(problem, memory, op.layout, {{op.out}, {op.out}}, choice);
    return launch<StoreBf16, tiles::Wide, tiles::Tall, tiles::Medium, tiles::Square, tiles::ThreeBlocks>(
        problem, memory, op.layout, {{}, {op.out}}, choice);
}

}  // namespace coda::hopper
