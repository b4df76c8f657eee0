// The program of products stored in fp32: out = alpha acc, alpha a device scalar or absent (1).
#pragma once

#include "kernels/hopper/epilogue/tiles.cuh"

namespace coda::hopper {

struct ScaledStore : EpilogueProgram {
    using Slot = hopper::Slot<32, Panel{128}>;
    struct Arguments {
        const float* alpha;  // may be null
    };

    static constexpr bool kSplits = true;

    float alpha;
    TileStoreF32<Slot, 0> out;

    __device__ explicit ScaledStore(const Arguments& arguments)
        : alpha(arguments.alpha != nullptr ? __ldg(arguments.alpha) : 1.0f) {}
    __device__ void visit(float2 acc, const Here& at) { out.put(at, {alpha * acc.x, alpha * acc.y}); }
};

}  // namespace coda::hopper
