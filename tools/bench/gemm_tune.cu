// Tile configurations of the plain product side by side: what gemm/tuned_tiles.h was chosen from.
#include "kernels/hopper/epilogue/tiles.cuh"
#include "kernels/hopper/gemm/launch.cuh"
#include "tools/bench/gemm_tune.h"

namespace coda::bench {

namespace {

using namespace coda::hopper;

template <int kColumns>
struct Store : EpilogueProgram {
    using Slot = hopper::Slot<kColumns, Panel{2 * kColumns}>;
    struct Arguments {};

    TileStore<Slot, 0> out;

    __device__ explicit Store(const Arguments&) {}
    __device__ void visit(float2 acc, const Here& at) { out.put(at, acc); }
};

struct Cooperative128x256 {
    static constexpr TileConfig config{.m = 128, .n = 256, .stages = 4, .slots = 2};
};
struct Cooperative256x128 {
    static constexpr TileConfig config{.m = 256, .n = 128, .stages = 4, .slots = 2};
};
struct Cooperative256x192 {
    static constexpr TileConfig config{.m = 256, .n = 192, .stages = 3, .slots = 2};
};
struct Pingpong128x192 {
    static constexpr TileConfig config{
        .m = 128, .n = 192, .stages = 5, .slots = 1, .schedule = hopper::Schedule::pingpong};
};
struct Pingpong128x128 {
    static constexpr TileConfig config{
        .m = 128, .n = 128, .stages = 6, .slots = 2, .schedule = hopper::Schedule::pingpong};
};
struct Pingpong64x256 {
    static constexpr TileConfig config{
        .m = 64, .n = 256, .stages = 5, .slots = 1, .schedule = hopper::Schedule::pingpong};
};

template <class Tile>
Candidate candidate(const char* name, const GemmCase& made, const Memory& memory, const View& out) {
    const Problem problem = linear_problem("tune", made.a, made.b, WeightLayout::out_in);
    return {name, launch_gemm<Store<64>, Tile, Major::k, Major::k>(problem, memory, {{}, {out}}, {})};
}

}  // namespace

std::vector<Candidate> candidates(const GemmCase& made, const Memory& memory) {
    const View out = made.buffers.back().view;
    return {candidate<Cooperative128x256>("cooperative 128x256", made, memory, out),
            candidate<Cooperative256x128>("cooperative 256x128", made, memory, out),
            candidate<Cooperative256x192>("cooperative 256x192", made, memory, out),
            candidate<Pingpong128x192>("pingpong 128x192", made, memory, out),
            candidate<Pingpong128x128>("pingpong 128x128", made, memory, out),
            candidate<Pingpong64x256>("pingpong 64x256", made, memory, out)};
}

}  // namespace coda::bench
