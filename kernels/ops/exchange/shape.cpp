#include "kernels/core/operand_check.h"
#include "kernels/ops/exchange/op.h"

namespace coda {

void require_exchange(const StartExchange& op) {
    require(op.ranks >= 2 && op.rank >= 0 && op.rank < op.ranks, op.name, ": rank ", op.rank, " of ", op.ranks,
            " exchanges nothing");
    const std::int64_t part = op.part();
    const DType dtype = op.source.dtype;
    const bool scatters = op.how == StartExchange::How::scatter;
    require_operand(op.name, "source", op.source, 1, scatters ? op.ranks * part : part, dtype);
    if (op.target) {
        require_operand(op.name, "target", op.target, op.ranks, part, dtype);
        require(op.target.ld == part, op.name, ": operand target has gaps between its rows");
        require(!op.before && !op.after, op.name, ": a target and parts in place");
        return;
    }
    require(!scatters, op.name, ": operand target is missing");
    const auto next_to = [&](const char* operand, const View& view, std::int64_t parts, std::int64_t offset) {
        require(static_cast<bool>(view) == (parts > 0), op.name, ": operand ", operand,
                parts > 0 ? " is missing" : " must be absent");
        if (parts == 0) return;
        require_operand(op.name, operand, view, 1, parts * part, dtype);
        require(view.buffer == op.source.buffer && view.offset == offset, op.name, ": operand ", operand,
                " does not lie next to source");
    };
    next_to("before", op.before, op.rank, op.source.offset - op.rank * op.source.bytes());
    next_to("after", op.after, op.ranks - 1 - op.rank, op.source.offset + op.source.bytes());
}

}  // namespace coda
