// linear, FP8 form - a plain GEMM of 8-bit operands
//
//   out = scale acc                    (M, N) bf16
//   out = scale acc or out += scale acc   (M, N) fp32
//
// Both operands have K in their columns. scale is a scalar on the device: it undoes the scales of a and w.
#include <type_traits>

#include "kernels/hopper/epilogue/scaled_store.cuh"
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/gemm/f8_form.h"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear/op.h"

namespace coda::hopper {

namespace {

struct ScaledStoreBf16 : EpilogueProgram {
    using Slot = hopper::Slot<64, Panel{128}>;
    struct Arguments {
        const float* scale;  // may be null
    };

    float scale;
    TileStore<Slot, 0> out;

    __device__ explicit ScaledStoreBf16(const Arguments& given)
        : scale(given.scale != nullptr ? __ldg(given.scale) : 1.0f) {}
    __device__ void visit(float2 acc, const Here& at) { out.put(at, {scale * acc.x, scale * acc.y}); }
};

template <class Program, class... Tiles>
using KMajor = Kernels<Program, Major::k, Major::k, Tiles...>;

template <class Program, int kPromotion, DType kA = DType::f8e4m3>
using Promoted =
    KMajor<Program, tiles::F8<tiles::PromotedNarrow, kPromotion, kA>, tiles::F8<tiles::PromotedSmall, kPromotion, kA>>;

template <class Program, class Fn>
auto with_promotion(const Linear& op, const Fn& fn) {
    if (op.a.dtype == DType::f8e5m2) return fn(Promoted<Program, 512, DType::f8e5m2>{});
    if (op.promotion == 256) return fn(Promoted<Program, 256>{});
    return fn(Promoted<Program, 512>{});
}

/// Calls fn with the kernels of the program that the op needs.
template <class Fn>
auto with_kernels(const Linear& op, const Fn& fn) {
    const bool f32 = op.out.dtype == DType::f32;
    if (op.promotion > 0) return f32 ? with_promotion<ScaledStore>(op, fn) : with_promotion<ScaledStoreBf16>(op, fn);
    if (f32) return fn(KMajor<ScaledStore, tiles::F8<tiles::Wide>>{});
    return fn(KMajor<ScaledStoreBf16, tiles::F8<tiles::Wide>, tiles::F8<tiles::Tall>, tiles::F8<tiles::Medium>,
                     tiles::F8<tiles::Square>, tiles::F8<tiles::ThreeBlocks>>{});
}

Problem problem_of(const Linear& op) {
    const Problem problem = linear_problem(op.name, op.a, op.w, op.layout);
    require_operand(op.name, "a", op.a, problem.m, problem.k, op.a.dtype);
    require_operand(op.name, "w", op.w, problem.n, problem.k, DType::f8e4m3);
    const DType out = op.out.dtype == DType::f32 ? DType::f32 : DType::bf16;
    require_operand(op.name, "out", op.out, problem.m, problem.n, out);
    if (op.scale) require_operand(op.name, "scale", op.scale, 1, 1, DType::f32);
    require(!op.rstd, op.name, ": operands that are FP8 have been normalised, so rstd must be absent");
    require(out == DType::f32 || op.out.beta == Beta::overwrite, op.name,
            ": FP8 operands overwrite a bf16 out; an fp32 out can be added to");
    require(op.promotion == 512 || (op.a.dtype == DType::f8e4m3 && (op.promotion == 0 || op.promotion == 256)), op.name,
            ": promotion is ", op.promotion, "; kernels were built for 0, 256 and 512, and with f8e5m2 for 512");
    return problem;
}

}  // namespace

template <>
Plan choose_f8(const Linear& op, const Request& request) {
    const Problem problem = problem_of(op);
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem, request); });
}

template <>
Launch bind_f8(const Linear& op, const Plan& plan, const Memory& memory) {
    const Problem problem = problem_of(op);
    return with_kernels(op, [&]<class Kernels>(Kernels kernels) {
        using Program = typename Kernels::Program;
        TileOperands<Program> operands{{}, {op.out}};
        typename Program::Arguments arguments{};
        if constexpr (std::is_same_v<Program, ScaledStore>) {
            arguments.alpha = memory.at<float>(op.scale);
            operands.add = op.out.beta == Beta::accumulate ? 1u : 0u;
        } else {
            arguments.scale = memory.at<float>(op.scale);
        }
        return kernels.bind(problem, plan, memory, operands, arguments);
    });
}

}  // namespace coda::hopper
