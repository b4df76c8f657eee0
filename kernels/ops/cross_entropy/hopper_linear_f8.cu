// linear_cross_entropy, FP8 form - hopper_linear.cu's program on accumulators of 8-bit operands
//
//   d   = scale acc - t, acc = a wᵀ    (M, V); a has been normalised, and scale is a scalar on the device
#include "kernels/hopper/gemm/f8_form.h"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/cross_entropy/program.cuh"

namespace coda::hopper {

namespace {

/// The factor takes the place of the rows' rstd.
template <bool kRagged>
struct CrossEntropyF8 : CrossEntropy<kRagged> {
    struct Arguments {
        CrossEntropyArguments program;
        const float* scale;
    };

    const float* scale;

    __device__ explicit CrossEntropyF8(const Arguments& given)
        : CrossEntropy<kRagged>(given.program), scale(given.scale) {}
    __device__ void begin_rows(const Rows& rows) {
        CrossEntropy<kRagged>::begin_rows(rows);
        this->factor[0] = this->factor[1] = __ldg(scale) * kLog2e;
    }
};

/// Calls fn with the kernels of the variant that the vocabulary needs.
template <class Fn>
auto with_kernels(const LinearCrossEntropy& op, const Fn& fn) {
    using tiles::F8;
    if (has_whole_tiles(op))
        return fn(
            Kernels<CrossEntropyF8<false>, Major::k, Major::k, F8<tiles::CrossEntropyTall>, F8<tiles::CrossEntropy>>{});
    return fn(Kernels<CrossEntropyF8<true>, Major::k, Major::k, F8<tiles::CrossEntropy>>{});
}

Problem problem_of(const LinearCrossEntropy& op) {
    const Problem problem = f8_problem(op.name, op.a, op.w, "scale", op.scale);
    require(!op.rstd, op.name, ": operands that are FP8 have been normalised, so rstd must be absent");
    return with_operands(op, problem);
}

}  // namespace

template <>
Plan choose_f8(const LinearCrossEntropy& op, const Request& request) {
    const Problem problem = problem_of(op);
    return with_kernels(op, [&](auto kernels) { return kernels.choose(problem, request); });
}

template <>
Launch bind_f8(const LinearCrossEntropy& op, const Plan& plan, const Memory& memory) {
    const Problem problem = problem_of(op);
    return with_kernels(op, [&](auto kernels) {
        return kernels.bind(problem, plan, memory, {{}, {op.exponentials}},
                            {arguments_of(op, memory), memory.at<float>(op.scale)});
    });
}

}  // namespace coda::hopper
