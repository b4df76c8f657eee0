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
        : slices_(ctx.slices(columns)), octets_(ctx.octets) {
        const int buffer = ctx.buffer_of(item.step, item.op);
        to_ = ctx.lamport_of(vector, buffer);
        const std::int64_t buffers = emptied_buffer(buffer) - buffer;
        emptied_ = static_cast<int>(buffers * ctx.arguments.exchange.lamport_words);
    }

    __device__ void store(int sequence, int column, std::uint32_t pair) const {
        const std::int64_t at = lamport_offset(slices_, octets_, sequence, column);
        ptx::store_number(to_ + at, pair);
        ptx::store_number(to_ + at + emptied(), kEmpty);
    }
    /// Two pairs, from a multiple of 4 columns on.
    __device__ void store(int sequence, int column, uint2 pairs) const {
        const std::int64_t at = lamport_offset(slices_, octets_, sequence, column);
        ptx::store_numbers(to_ + at, pairs);
        ptx::store_numbers(to_ + at + emptied(), uint2{kEmpty, kEmpty});
    }

  private:
    __device__ std::int64_t emptied() const { return std::int64_t{emptied_} * 8; }

    Slices slices_;
    int octets_ = 1;
    char* to_ = nullptr;
    int emptied_ = 0;  // words from there to what is emptied: a pointer would take one more register
};

}  // namespace coda::hopper::decode
