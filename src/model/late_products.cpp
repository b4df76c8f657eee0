#include "src/model/late_products.h"

#include <algorithm>
#include <utility>

#include "kernels/cost.h"
#include "src/core/buffers.h"

namespace coda {

namespace {

/// Whether a step of [begin, end) writes what `op` reads, or touches what it writes.
bool interferes(const Op& op, const Step* begin, const Step* end) {
    bool found = false;
    for_each_operand(op, [&](const char*, const View& operand, Access how) {
        for (const Step* step = begin; step < end; ++step) {
            for_each_operand(step->op, [&](const char*, const View& other, Access access) {
                found = found || ((how != Access::in || access != Access::in) && overlap(operand, other));
            });
        }
    });
    return found;
}

}  // namespace

void put_products_last(Schedule& schedule) {
    const Schedule made = std::exchange(schedule, {});
    Schedule late;
    for (std::size_t i = 0; i < made.size(); ++i) {
        const Step& step = made[i];
        const bool waits = step.layer >= 0 && step.layer < kLateLayers &&
                           std::holds_alternative<WeightGradient>(step.op) &&
                           !interferes(step.op, made.data() + i + 1, made.data() + made.size());
        (waits ? late : schedule).push_back(step);
    }
    std::stable_sort(late.begin(), late.end(),
                     [](const Step& a, const Step& b) { return cost(a.op).flops > cost(b.op).flops; });
    schedule.insert(schedule.end(), late.begin(), late.end());
}

}  // namespace coda
