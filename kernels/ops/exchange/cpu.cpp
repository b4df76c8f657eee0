// StartExchange and FinishExchange on the CPU.
#include <cstring>

#include "kernels/cpu/execute.h"
#include "kernels/ops/exchange/op.h"

namespace coda::cpu {

template <>
void execute(const StartExchange& op, const Memory& memory) {
    require_exchange(op);
    // A transfer takes a rank's own part from its row of the target.
    if (op.how == StartExchange::How::gather && op.target) {
        std::memcpy(memory.address(op.target.row_slice(op.rank, 1)), memory.address(op.source),
                    static_cast<std::size_t>(op.source.bytes()));
    }
    memory.peers().start(op.transfer, nullptr);
}

template <>
void execute(const FinishExchange& op, const Memory& memory) {
    memory.peers().finish(op.transfer, nullptr);
}

}  // namespace coda::cpu
