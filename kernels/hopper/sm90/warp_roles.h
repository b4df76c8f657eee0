// How the warpgroups of a GEMM kernel share its work: what the kernel and its epilogues both count with. Host and
// device.
#pragma once

namespace coda::hopper {

enum class WarpSpecialization : int {
    cooperative,  // both consumer warpgroups on one tile, each with half of its rows
    pingpong,     // each consumer warpgroup on a tile of its own: one's epilogue runs under the other's GEMM
};

inline constexpr int kConsumers = 2;   // consumer warpgroups: wgmma and epilogue
inline constexpr int kPanelRows = 64;  // rows of an epilogue panel: one m64 block of a consumer

}  // namespace coda::hopper
