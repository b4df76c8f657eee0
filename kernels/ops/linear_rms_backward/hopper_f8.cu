// linear_rms_backward, FP8 form - hopper.cu's program on accumulators of 8-bit operands
//
//   t = f8_scale rstd acc, acc = a wᵀ; w is the transposed copy (N, K), a stands for dz without rstd
//
// f8_scale is a scalar on the device, and stands in the place of the rows' scale of the bf16 form. With promotion,
// tiles are cooperative, and their epilogue is exposed.
#include "kernels/hopper/gemm/f8_form.h"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_rms_backward/program.cuh"

namespace coda::hopper {

namespace {

struct RmsBackwardF8 : RmsBackward<false> {
    using Base = RmsBackward<false>;
    struct Arguments {
        Base::Arguments base;
        const float* f8_scale;
    };

    const float* f8_scale;

    __device__ explicit RmsBackwardF8(const Arguments& given) : Base(given.base), f8_scale(given.f8_scale) {}
    __device__ void begin_rows(const Rows& rows) {
        ColumnVector rstd, dot;
        rstd.begin_rows(rows, arguments.rstd, 0);
        dot.begin_rows(rows, arguments.dot, 0);
        const float factor = __ldg(f8_scale);
#pragma unroll
        for (int half = 0; half < 2; ++half)
            row[half] = rms_backward_row(1.0f, rstd.value[half], dot.value[half] * arguments.per_column, factor);
    }
};

template <class... Tiles>
using KMajor = Kernels<RmsBackwardF8, Major::k, Major::k, Tiles...>;

/// Calls fn with the kernels that the op needs.
template <class Fn>
auto with_kernels(const LinearRmsBackward& op, const Fn& fn) {
    if (op.promotion == 0) return fn(KMajor<tiles::F8<tiles::RmsBackward>>{});
    return fn(KMajor<tiles::F8<tiles::RmsBackwardPromoted, 256>, tiles::F8<tiles::RmsBackwardPromotedSmall, 256>>{});
}

Problem problem_of(const LinearRmsBackward& op) {
    const Problem problem = f8_problem(op.name, op.a, op.w, "f8_scale", op.f8_scale);
    require(!op.alpha && !op.scale && !op.n, op.name, ": with FP8 operands, alpha, scale and n must be absent");
    require(op.promotion == 0 || op.promotion == 256, op.name, ": promotion is ", op.promotion,
            "; kernels were built for 0 and 256");
    require_operands(op, problem);
    return problem;
}

}  // namespace

template <>
Plan choose_f8(const LinearRmsBackward& op, const Request& request) {
    const Problem problem = problem_of(op);
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem, request); });
}

template <>
Launch bind_f8(const LinearRmsBackward& op, const Plan& plan, const Memory& memory) {
    const Problem problem = problem_of(op);
    const View before = op.dx.beta == Beta::accumulate ? View(op.dx) : View{};
    const RmsBackwardF8::Arguments arguments{arguments_of<RmsBackward<false>::Arguments>(op, problem, memory),
                                             memory.at<float>(op.f8_scale)};
    return with_kernels(op, [&](auto kernels) {
        return kernels.bind(problem, plan, memory, {{before, op.x}, {op.dx, View{}}}, arguments);
    });
}

}  // namespace coda::hopper
