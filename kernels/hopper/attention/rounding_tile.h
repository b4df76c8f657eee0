// The tile of a kernel that stores its result as FP8 codes: o next to bf16, dqkv in place of it. Host and device.
#pragma once

namespace coda::hopper {

template <class Tile>
struct RoundingTile : Tile {
    static constexpr bool kRounds = true;
};

}  // namespace coda::hopper
