// Numbers of SMs for which the work of the fused decode kernel is checked.
#pragma once

namespace coda::test {

inline constexpr int kDecodeGrids[] = {1, 2, 7, 16, 108, 114, 131, 132, 148};

}  // namespace coda::test
