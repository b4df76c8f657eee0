#include "src/engine/team.h"

#include "kernels/core/error.h"

namespace coda {

std::vector<Transfer> transfers_of(const Schedules& schedules, const MemoryPlan& plan) {
    const auto place_of = [&](const View& view) {
        return plan.offset[static_cast<std::size_t>(view.buffer)] + view.offset;
    };
    std::vector<Transfer> transfers(static_cast<std::size_t>(schedules.transfers));
    for (const Schedule* schedule : schedules.all()) {
        for (const Step& step : *schedule) {
            const auto* op = std::get_if<StartExchange>(&step.op);
            if (!op) continue;
            const std::int64_t bytes = op->part() * size_of(op->source.dtype), source = place_of(op->source);
            transfers.at(static_cast<std::size_t>(op->transfer)) = {
                op->how, source, op->target ? place_of(op->target) : source - op->rank * bytes, bytes};
        }
    }
    return transfers;
}

}  // namespace coda
