// StartExchange and FinishExchange on a stream. Neither can be captured into a graph: what moves the bytes may be
// anything.
#include <cuda_runtime.h>

#include "kernels/hopper/plan.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/ops/exchange/op.h"

namespace coda::hopper {

template <>
Launch bind(const StartExchange& op, const Plan&, const Memory& memory) {
    require_exchange(op);
    const auto* source = memory.address(op.source);
    // A transfer takes a rank's own part from its row of the target.
    const bool copies = op.how == StartExchange::How::gather && op.target;
    auto* own = copies ? memory.address(op.target.row_slice(op.rank, 1)) : nullptr;
    const auto bytes = static_cast<std::size_t>(op.source.bytes());
    return [=, peers = &memory.peers(), transfer = op.transfer](Stream stream) {
        if (copies) CUDA_CHECK(cudaMemcpyAsync(own, source, bytes, cudaMemcpyDeviceToDevice, stream));
        peers->start(transfer, stream);
    };
}

template <>
Plan choose(const StartExchange& op, const Request&) {
    require_exchange(op);
    return {};
}

template <>
Launch bind(const FinishExchange& op, const Plan&, const Memory& memory) {
    return [peers = &memory.peers(), transfer = op.transfer](Stream stream) { peers->finish(transfer, stream); };
}

template <>
Plan choose(const FinishExchange&, const Request&) {
    return {};
}

}  // namespace coda::hopper
