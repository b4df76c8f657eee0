// linear_rms_backward, FP8 factors - hopper.cu's program on accumulators of 8-bit operands
//
//   t = undo rstd acc, acc = a wᵀ; w is the transposed copy (N, K), a stands for dz without rstd
//   dx_f8 = f8(dx_scale dx), dx_f8_t its transposed copy, dx_amax = max |dx|: optional, from dx as stored
//
// undo is a scalar on the device; it replaces the rows' scale of hopper.cu. With promotion,
// tiles are cooperative, and the tensor cores begin the next tile during an epilogue. The FP8 copies of dx take the
// bytes of x in the slot, so that a tile has as many stages and slots with them as without.
#include <type_traits>

#include "kernels/hopper/epilogue/tiles_f8.cuh"
#include "kernels/hopper/gemm/kernels.cuh"
#include "kernels/hopper/gemm/tuned_tiles.h"
#include "kernels/ops/linear_rms_backward/op.h"
#include "kernels/ops/linear_rms_backward/program.cuh"

namespace coda::hopper {

namespace {

template <class Slot_>
struct RmsBackwardF8 : RmsBackward<false, Slot_> {
    using Base = RmsBackward<false, Slot_>;
    struct Arguments {
        typename Base::Arguments base;
        const float* f8_scale;
    };

    const float* f8_scale;

    __device__ explicit RmsBackwardF8(const Arguments& given) : Base(given.base), f8_scale(given.f8_scale) {}
    __device__ void begin_rows(const Rows&) {
        this->rstd.begin_rows();
        this->dot.begin_rows();
        const float factor = __ldg(f8_scale);
#pragma unroll
        for (int half = 0; half < 2; ++half)
            this->row[half] = rms_backward_row(1.0f, this->rstd.value[half],
                                               this->dot.value[half] * this->arguments.per_column, factor);
    }
};

/// dx in place; x, overwritten by the FP8 copies of dx.
using SlotOfCopies = Slot<32, Panel{64}, Panel{64}, Over{TransposedPanel{32}, 1}, Over{Panel{32}, 1}>;

struct RmsBackwardF8AndCopies : RmsBackwardF8<SlotOfCopies> {
    using Base = RmsBackwardF8<SlotOfCopies>;
    struct Arguments {
        Base::Arguments base;
        const float* dx_scale;
        float* dx_amax;
    };

    static constexpr int kFetched = SlotOfCopies::kColumns / 4;  // all of x, before a copy lies over it

    const Arguments& of_copies;
    float dx_scale;
    TileStoreF8<SlotOfCopies, 3, 2> copies;
    LargestMagnitude amax;

    __device__ explicit RmsBackwardF8AndCopies(const Arguments& given) : Base(given.base), of_copies(given) {}
    __device__ void begin_rows(const Rows& rows) {
        Base::begin_rows(rows);
        amax.clear();
    }
    /// NOTE: the scale is read for each sub-tile: kept over the GEMM, it would take a register.
    __device__ void begin_slot(const Rows&, int) { dx_scale = *of_copies.dx_scale; }
    /// NOTE: dx is fetched in halves of a sub-tile, as two sets of accumulators leave no registers for more. No copy
    /// lies over dx.
    __device__ void fetch(const Here& at) {
        if (at.block < 2) this->dx_before.fetch_if(this->arguments.accumulate, at);
        this->x.fetch(at);
    }
    __device__ void visit(float2 acc, const Here& at) {
        if (at.block == 0 && at.half == 0) ptx::named_barrier_sync(1 + at.thread.warpgroup, kWarpgroupThreads);
        if (at.block == 2) this->dx_before.fetch_if(this->arguments.accumulate, at);
        const float2 stored = Base::visit(acc, at);
        amax.add(stored.x);
        amax.add(stored.y);
        copies.put(at, {dx_scale * stored.x, dx_scale * stored.y});
    }
    __device__ void end_rows(const Rows& rows) {
        Base::end_rows(rows);
        amax.raise(rows.thread, 1, of_copies.dx_amax);
    }
};

template <class Program, class... Tiles>
using KMajor = Kernels<Program, Major::k, Major::k, Tiles...>;

/// kA: the format of a.
template <class Program, DType kA, class Fn>
auto with_tiles(const LinearRmsBackward& op, const Fn& fn) {
    constexpr std::int64_t kPromotion = kPromotionOverFeatures;
    if (op.promotion() == 0)
        return fn(KMajor<Program, tiles::F8<tiles::RmsBackward, 0, kA>,
                         tiles::F8<tiles::RmsBackwardMediumCooperative, 0, kA>>{});
    return fn(KMajor<Program, tiles::F8<tiles::RmsBackwardPromoted, kPromotion, kA>,
                     tiles::F8<tiles::RmsBackwardPromotedSmall, kPromotion, kA>>{});
}
template <class Program, class Fn>
auto with_format(const LinearRmsBackward& op, const Fn& fn) {
    if (op.a.dtype == DType::f8e5m2) return with_tiles<Program, DType::f8e5m2>(op, fn);
    return with_tiles<Program, DType::f8e4m3>(op, fn);
}

/// Calls fn with the kernels that the op needs.
template <class Fn>
auto with_kernels(const LinearRmsBackward& op, const Fn& fn) {
    return op.dx_codes ? with_format<RmsBackwardF8AndCopies>(op, fn)
                       : with_format<RmsBackwardF8<RmsBackwardSlot>>(op, fn);
}

template <class Slot>
typename RmsBackwardF8<Slot>::Arguments f8_arguments(const LinearRmsBackward& op, const Problem& problem,
                                                     const Memory& memory) {
    return {arguments_of(op, problem, memory), memory.at<float>(op.w.undo)};
}

Problem problem_of(const LinearRmsBackward& op) {
    const Problem problem = f8_problem(op.name, op.a, op.w, op.a.dtype);
    require_operands(op, problem);
    if (op.dx_codes) require_rounded(op.name, op.dx_names, op.dx_codes, problem.m, problem.n, true, kF8Multiple);
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
    return with_kernels(op, [&]<class Kernels>(Kernels kernels) {
        if constexpr (std::is_same_v<typename Kernels::Program, RmsBackwardF8AndCopies>) {
            return kernels.bind(problem, plan, memory,
                                {{before, op.x}, {op.dx, View{}, op.dx_codes.columns, op.dx_codes.rows}},
                                {f8_arguments<SlotOfCopies>(op, problem, memory), memory.at<float>(op.dx_codes.scale),
                                 memory.at<float>(op.dx_codes.amax)});
        } else {
            return kernels.bind(problem, plan, memory, {{before, op.x}, {op.dx, View{}}},
                                f8_arguments<RmsBackwardSlot>(op, problem, memory));
        }
    });
}

}  // namespace coda::hopper
