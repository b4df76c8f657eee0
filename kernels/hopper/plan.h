// The two halves of an op on a Hopper GPU: choose needs only shapes, bind needs memory. Each op's folder specialises
// both, so an op without a kernel does not link. Host.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/core/memory.h"
#include "kernels/hopper/sm90/launch.h"
#include "kernels/hopper/sm90/tile_config.h"

namespace coda::hopper {

/// A tuner's or a test's request to deviate from the default.
struct Request {
    int candidate = -1;            // index in Plan::candidates; -1: the tile of highest expected speed
    std::optional<Raster> raster;  // instead of the tile's own
    std::int64_t splits = 0;       // parts of K of a weight gradient; 0: the number of least expected time
    bool overlap = true;           // the kernel may start while its predecessor in the stream finishes
};

/// How an op is launched.
struct Plan {
    std::vector<TileConfig> candidates;  // tiles that the op's GEMM was built in; empty for ops without one
    int taken = -1;                      // index of the chosen one
    Raster raster;                       // the order of its tiles
    std::int64_t splits = 1;             // parts of K, each with results of its own
    std::int64_t split_rows = 0;         // rows from one part's results to the next part's
    std::int64_t scratch_bytes = 0;      // bytes that the operand scratch must have
    bool overlap = true;
};

/// Decides only from shapes and dtypes: without memory or a CUDA call, and with the same result on every machine.
/// Throws Error, naming the op and the operand, where these do not fit the kernels, and where the request names a tile
/// that does not fit the op.
template <class Op>
Plan choose(const Op& op, const Request& request = {});

/// Prepares the op on buffers of the current device, which must have compute capability 9.0. `plan` is the result of
/// choose for an op of the same shapes. Throws Error where an operand's address lacks the alignment that its kernel
/// needs.
template <class Op>
Launch bind(const Op& op, const Plan& plan, const Memory& memory);

/// The same for an op of FP8 factors, whose kernels hopper_f8.cu of its folder has.
template <class Op>
Plan choose_f8(const Op& op, const Request& request);
template <class Op>
Launch bind_f8(const Op& op, const Plan& plan, const Memory& memory);

}  // namespace coda::hopper
