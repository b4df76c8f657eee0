#include "src/engine/nonfinite.h"

#include "kernels/core/error.h"

namespace coda {

void NonFiniteFinder::after(Pass pass, std::size_t index, double, double) {
    if (found_) return;
    const Step& step = schedules_[pass][index];
    for_each_operand(step.op, [&](const char* name, const View& view, Access access) {
        if (found_ || access == Access::in) return;
        const std::int64_t bad = executor_.first_nonfinite(view);
        if (bad < 0) return;
        std::string where = text(name_of(step.op), " '", step.name, "'");
        if (step.layer >= 0) where += text(" of layer ", step.layer);
        found_ =
            text(where, ": operand ", name, " is not finite at row ", bad / view.cols, ", column ", bad % view.cols);
    });
}

}  // namespace coda
