#include "src/train/float8_counts.h"

namespace coda {

namespace {

struct Stored {
    View codes, scale;
};

/// What an op stores of tensors that no op before it in the pass has stored. Copies have equal codes, so one counts;
/// of what is made anew in the backward pass, a copy was counted in the forward pass.
struct StoredBy {
    using List = std::vector<Stored>;
    List operator()(const QuantiseF8& op) const { return {{op.rows, op.scale}}; }
    List operator()(const LinearSwigluF8& op) const { return {{op.z_t, op.z_scale}, {op.y, op.y_scale}}; }
    List operator()(const LinearSwigluBackwardF8& op) const { return {{op.dz, op.dz_scale}}; }
    List operator()(const LinearRmsBackward& op) const { return {{op.dx_f8, op.dx_scale}}; }
    template <class Other>
    List operator()(const Other&) const {
        return {};
    }
};

}  // namespace

void Float8Counts::begin() {
    counts_.assign(schedules_.float8_tensors.size(), {});
    for (const Step& step : schedules_.scales) {
        if (const auto* op = std::get_if<QuantiseF8>(&step.op)) add(op->rows, op->scale);
    }
}

void Float8Counts::after(Pass pass, std::size_t index, double, double) {
    for (const auto& [codes, scale] : std::visit(StoredBy{}, schedules_[pass][index].op)) {
        if (codes) add(codes, scale);
    }
}

void Float8Counts::add(const View& codes, const View& scale) {
    const View& scales = schedules_.host.float8.scales;
    if (scale.buffer != scales.buffer) return;  // of a normalised input, which cannot leave its range
    const auto tensor = static_cast<std::size_t>((scale.offset - scales.offset) / size_of(scales.dtype));
    const CodeCounts found = executor_.count_codes(codes);
    CodeCounts& sum = counts_.at(tensor);
    sum.elements += found.elements;
    sum.saturated += found.saturated;
    sum.zeros += found.zeros;
}

}  // namespace coda
