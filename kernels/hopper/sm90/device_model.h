// Facts of the GPU that plans are made for, known without one: an H100 or H200 SXM. Times were measured on an H200.
#pragma once

#include <cstdint>

namespace coda::hopper {

inline constexpr int kMultiprocessors = 132;

/// A weight gradient's GEMM: a k-tile, 64 tokens or 128 in FP8, of an output tile of 128 x 256; the start and end of a
/// tile; the start of another kernel; what a kernel that only adds moves.
inline constexpr double kMicrosecondsPerKTile = 0.8;
inline constexpr double kMicrosecondsPerTile = 3;
inline constexpr double kMicrosecondsPerLaunch = 3;
inline constexpr double kBytesPerMicrosecond = 3e6;

}  // namespace coda::hopper
