#include "src/engine/f8_counts.h"

namespace coda {

void F8Counts::begin() {
    counts_.assign(schedules_.weights.tensors().size(), {});
    for (const Step& step : schedules_.scales) {
        for_each_rounded(step.op, [&](const Rounded& codes) { add(codes); });
    }
}

void F8Counts::after(Pass pass, std::size_t index, double, double) {
    for_each_rounded(schedules_[pass][index].op, [&](const Rounded& codes) { add(codes); });
}

void F8Counts::add(const Rounded& codes) {
    // Without amax: a normalised input, which cannot leave its range, or codes made again, which have been counted.
    if (!codes.amax) return;
    const View& stored = codes.rows ? codes.rows : codes.columns;
    if (!stored) return;
    const View& scales = schedules_.host.f8.scales;
    const auto tensor = static_cast<std::size_t>((codes.scale.offset - scales.offset) / size_of(scales.dtype));
    const CodeCounts found = executor_.count_codes(stored);
    CodeCounts& sum = counts_.at(tensor);
    sum.elements += found.elements;
    sum.saturated += found.saturated;
    sum.zeros += found.zeros;
}

}  // namespace coda
