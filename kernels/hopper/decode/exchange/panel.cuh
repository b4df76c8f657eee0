// A consumer warp's input as panels: it loads its slices of all sequences in the order of the MMAs' operands, each lane
// what it will multiply, as soon as all of it is there. Device.
#pragma once

#include "kernels/hopper/decode/exchange/arrivals.cuh"
#include "kernels/hopper/decode/exchange/input.cuh"

namespace coda::hopper::decode {

__device__ __forceinline__ bool has_empty(const uint4& unit) {
    return unit.x == kEmpty || unit.y == kEmpty || unit.z == kEmpty || unit.w == kEmpty;
}

inline constexpr int kPolledWhole = 4;  // sequences: panels of more are too many bytes to poll

/// Copies slice `slice` to a warp's input at `to`, sequences kInputPitch bytes apart. Lanes without a sequence, and
/// sequences without input, copy nothing; columns behind the last count as 0. One warp; all loads are on their way at a
/// time. Where the panel may be long in coming, the warp polls its first 16 bytes per lane alone.
__device__ __forceinline__ void fetch_panel(const Self& self, const Stage& stage, const Slices& slices, int slice,
                                            char* to, const Place& place, bool may_be_long) {
    const int sequence = lane_row(self.lane);
    const bool wanted = sequence < self.shape().batch && has_input(self, stage, sequence);
    // Columns from the lane's first on.
    const int columns = wanted ? slices.columns_of(slice, stage.columns) - lane_column(self.lane) : 0;
    const char* from = self.panels_of(input_of(self.arguments.exchange, stage.kind).panels,
                                      self.copy_of(place.token, place.stage - 1)) +
                       std::int64_t{slice} * kPanelBytes + self.lane * kUnitBytes;
    uint4 units[kPanelUnits];
#pragma unroll
    for (int u = 0; u < kPanelUnits; ++u) units[u] = uint4{u / 2 * kBlockColumns < columns ? kEmpty : 0, 0, 0, 0};
    if (may_be_long && self.shape().batch > kPolledWhole)
        self.watch.wait_or_exit(place, Awaited::input, [&] {
            ptx::load_numbers(units[0], from, has_empty(units[0]));
            return !has_empty(units[0]);
        });
    self.watch.wait_or_exit(place, Awaited::input, [&] {
#pragma unroll
        for (int u = 0; u < kPanelUnits; ++u)
            ptx::load_numbers(units[u], from + u * 32 * kUnitBytes, has_empty(units[u]));
        bool all = true;
#pragma unroll
        for (const uint4& unit : units) all = all && !has_empty(unit);
        return all;
    });
    __syncwarp();  // all have used what is there
    char* own = to + sequence * kInputPitch + 2 * lane_column(self.lane);
#pragma unroll
    for (int u = 0; u < kPanelUnits; ++u)
        if (wanted) *reinterpret_cast<uint4*>(own + u / 2 * kBlockRowBytes + u % 2 * kUnitBytes) = units[u];
    __syncwarp();
}

/// Lane b returns the sum of the squares of sequence b's `columns`, added in SliceFetch's order.
__device__ __forceinline__ float panel_squares(const Self& self, const char* panel, int columns) {
    constexpr int kLoads = kSliceColumns / 4 / 32;
    float own = 0;
#pragma unroll 2
    for (int b = 0; b < self.shape().batch; ++b) {
        float square = 0;
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
            const int four = self.lane + 32 * u;
            if (four >= columns / 4) continue;
            const uint2 pair = *reinterpret_cast<const uint2*>(panel + b * kInputPitch + 8 * four);
            square += square_sum(pair.x) + square_sum(pair.y);
        }
        const float sum = warp_sum(square);
        if (self.lane == b) own = sum;
    }
    return own;
}

}  // namespace coda::hopper::decode
