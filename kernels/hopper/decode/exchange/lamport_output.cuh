// An epilogue warp's results into Lamport buffers (Exchange). Device.
#pragma once

#include "kernels/hopper/decode/exchange/context.cuh"

namespace coda::hopper::decode {

/// Stores pairs of a vector of `columns` in the layer's set of Lamport buffers, and empties their places in the set
/// that is written two layers later.
class LamportOutput {
  public:
    LamportOutput() = default;
    __device__ LamportOutput(const WarpContext& ctx, const WorkItem& item, std::int64_t vector, int columns)
        : slices_(ctx.slices(columns)) {
        const int buffer = ctx.buffer_of(item.step, item.op);
        to_ = ctx.lamport_of(vector, buffer);
        emptied_ = ctx.lamport_of(vector, emptied_buffer(buffer));
    }

    __device__ void store(int sequence, int column, std::uint32_t pair) const {
        const std::int64_t at = lamport_offset(slices_, sequence, column);
        ptx::store_number(to_ + at, pair);
        ptx::store_number(emptied_ + at, kEmpty);
    }
    /// Two pairs, from a multiple of 4 columns on.
    __device__ void store(int sequence, int column, uint2 pairs) const {
        const std::int64_t at = lamport_offset(slices_, sequence, column);
        ptx::store_numbers(to_ + at, pairs);
        ptx::store_numbers(emptied_ + at, uint2{kEmpty, kEmpty});
    }

  private:
    Slices slices_;
    char *to_ = nullptr, *emptied_ = nullptr;
};

}  // namespace coda::hopper::decode
