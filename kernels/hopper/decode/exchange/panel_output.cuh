// An epilogue warp's results into panels (Exchange). Device.
#pragma once

#include "kernels/hopper/decode/exchange/self.cuh"

namespace coda::hopper::decode {

/// Stores pairs of a vector of `columns` in the layer's copy of the panels, and empties their places in the copy that
/// is written two layers later.
class PanelOutput {
  public:
    PanelOutput() = default;
    __device__ PanelOutput(const Self& self, const Place& place, std::int64_t vector, int columns)
        : slices_(slices_of(columns)) {
        const int copy = self.copy_of(place.token, place.stage);
        to_ = self.panels_of(vector, copy);
        emptied_ = self.panels_of(vector, emptied_copy(copy));
    }

    __device__ void store(int sequence, int column, std::uint32_t pair) const {
        const std::int64_t at = panel_offset(slices_, sequence, column);
        ptx::store_number(to_ + at, pair);
        ptx::store_number(emptied_ + at, kEmpty);
    }
    /// Two pairs, from a multiple of 4 columns on.
    __device__ void store(int sequence, int column, uint2 pairs) const {
        const std::int64_t at = panel_offset(slices_, sequence, column);
        ptx::store_numbers(to_ + at, pairs);
        ptx::store_numbers(emptied_ + at, uint2{kEmpty, kEmpty});
    }

  private:
    Slices slices_;
    char *to_ = nullptr, *emptied_ = nullptr;
};

}  // namespace coda::hopper::decode
