// linear - a plain GEMM, which overwrites a bf16 or fp32 result or adds to it; or one whose rows of A still lack their
// norm's 1/rms (K5)
//
//   out = acc  or  out += acc          (M, N)
//   out = acc rstd                     (M, N) bf16; rstd is one factor per row, so it commutes with the GEMM
#include <type_traits>

#include "kernels/hopper/epilogue/scaled_store.cuh"
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear/op.h"

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
    ColumnVector<> rstd;
    TileStore<Slot, 0> out;

    __device__ explicit Rstd(const Arguments& given) : arguments(given) {}
    __device__ void load_rows(const Rows& rows) { rstd.load_rows(rows, arguments.rstd, 0); }
    __device__ void begin_rows(const Rows&) { rstd.begin_rows(); }
    __device__ void visit(float2 acc, const Here& at) { out.put(at, {acc.x * rstd[at], acc.y * rstd[at]}); }
};

/// The kernels of a program and tiles for the way in which the op reads w.
template <class Program, class... Tiles, class Fn>
auto with_layout(const Linear& op, const Fn& fn) {
    return op.layout == WeightLayout::out_in ? fn(Kernels<Program, Major::k, Major::k, Tiles...>{})
                                             : fn(Kernels<Program, Major::k, Major::mn, Tiles...>{});
}

/// Calls fn with the kernels of the program that the op needs.
template <class Fn>
auto with_kernels(const Linear& op, const Fn& fn) {
    if (op.rstd) return fn(Kernels<Rstd, Major::k, Major::k, tiles::Medium, tiles::Square>{});
    if (op.out.dtype == DType::f32) return with_layout<ScaledStore, tiles::Wide>(op, fn);
    if (op.out.beta == Beta::accumulate) return with_layout<AddBf16, tiles::InPlace>(op, fn);
    return with_layout<StoreBf16, tiles::Wide, tiles::Tall, tiles::Medium, tiles::Square, tiles::ThreeBlocks>(op, fn);
}

Problem problem_of(const Linear& op) {
    const Problem problem = linear_problem(op.name, op.a, op.w, op.layout);
    require_operand(op.name, "out", op.out, problem.m, problem.n, op.out.dtype);
    if (op.rstd) {
        require_operand(op.name, "rstd", op.rstd, 1, problem.m, DType::f32);
        require(op.layout == WeightLayout::out_in && op.out.dtype == DType::bf16 && op.out.beta == Beta::overwrite,
                op.name, ": with rstd, Hopper kernels take w as (N, K) and overwrite a bf16 out");
    }
    return problem;
}

}  // namespace

template <>
Plan choose(const Linear& op, const Request& request) {
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem_of(op), request); });
}

template <>
Launch bind(const Linear& op, const Plan& plan, const Memory& memory) {
    return with_kernels(op, [&]<class Kernels>(Kernels kernels) {
        using Program = typename Kernels::Program;
        TileOperands<Program> operands{{}, {op.out}};
        typename Program::Arguments arguments{};
        const bool accumulate = op.out.beta == Beta::accumulate;
        if constexpr (std::is_same_v<Program, Rstd>) arguments.rstd = memory.at<float>(op.rstd);
        if constexpr (std::is_same_v<Program, AddBf16>) operands.load[0] = op.out;
        if constexpr (std::is_same_v<Program, ScaledStore>) operands.add = accumulate ? 1u : 0u;
        return kernels.bind(problem_of(op), plan, memory, operands, arguments);
    });
}

}  // namespace coda::hopper
