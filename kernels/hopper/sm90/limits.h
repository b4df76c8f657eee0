// Numbers of the SM90 that several kernels count with. Host and device.
#pragma once

namespace coda::hopper {

inline constexpr int kWarpgroupThreads = 128;       // four warps, which issue one wgmma together
inline constexpr int kMaxSharedBytes = 227 * 1024;  // of a block, by opt-in
inline constexpr int kNamedBarriers = 16;           // of a block; __syncthreads is number 0
inline constexpr int kPanelRowBytes = 128;          // of the widest swizzle: 64 bf16, 128 FP8
inline constexpr int kSwizzleAtomBytes = 1024;      // 8 such rows: the period of the swizzle, which panels start at

}  // namespace coda::hopper
