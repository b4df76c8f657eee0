// The program of GEMMs whose result is fp32: out = alpha acc ⊙ gamma. alpha is a scalar on the device, gamma a vector
// over the columns; each may be absent and then counts as 1.
#pragma once

#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/epilogue/vectors.cuh"

namespace coda::hopper {

struct ScaledStore : EpilogueProgram {
    using Slot = hopper::Slot<32, Panel{128}>;
    struct Arguments {
        const float* alpha;  // may be null
        const float* gamma;  // (N), may be null
    };

    static constexpr bool kSplits = true;

    const Arguments& arguments;
    float alpha;
    RowVector<Slot> gamma;
    TileStoreF32<Slot, 0> out;

    __device__ explicit ScaledStore(const Arguments& given)
        : arguments(given), alpha(given.alpha != nullptr ? __ldg(given.alpha) : 1.0f) {}
    __device__ void begin_slot(const Rows& rows, int column) {
        if (arguments.gamma != nullptr) gamma.begin_slot(rows, column, arguments.gamma);
    }
    __device__ void visit(float2 acc, const Here& at) {
        const float2 weight = arguments.gamma != nullptr ? gamma[at] : make_float2(1, 1);
        out.put(at, {alpha * acc.x * weight.x, alpha * acc.y * weight.y});
    }
};

}  // namespace coda::hopper
