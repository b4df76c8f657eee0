#include "src/engine/finite_state.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "src/core/errors.h"
#include "src/engine/model_state.h"
#include "src/io/checkpoint_weights.h"

namespace coda {

namespace {

/// The tensor that holds an element of the flat segment, with its row and column.
std::string place_of(const ParameterLayout& layout, std::int64_t element) {
    for (const HfTensor& tensor : layout.tensors) {
        for (std::int64_t row = 0; row < tensor.rows; ++row) {
            const std::int64_t column = element - tensor.row_offset(row);
            if (column >= 0 && column < tensor.cols) return text(tensor.name, ", row ", row, ", column ", column);
        }
    }
    return text("element ", element, " of the padding");
}

/// What an element of a segment's view is, and of which tensor.
std::string named(const Session& session, const StateSegment& in, std::int64_t element) {
    const std::string_view segment = in.name;
    const auto range = std::find_if(in.ranges.begin(), in.ranges.end(),
                                    [&](const OwnRange& each) { return element < each.at + each.count; });
    element += range->first - range->at;
    if (segment == kF8Segment) {
        const std::vector<ScaledTensor>& tensors = session.schedules().weights.tensors();
        const ScaledTensor& tensor = tensors[static_cast<std::size_t>(element) % tensors.size()];
        return text("a largest magnitude is not finite: ", tensor.place());
    }
    return text(segment == kMasterSegment ? "a weight" : "a moment of AdamW",
                " is not finite: ", place_of(session.layout(), element));
}

}  // namespace

void require_finite_state(Session& session, std::int64_t step) {
    for (const StateSegment& segment : state_segments(session.schedules())) {
        const std::int64_t bad = session.executor().first_nonfinite(segment.view);
        if (bad < 0) continue;
        throw NonFiniteError(text("step ", step, ": ", named(session, segment, bad),
                                  ". The step is not saved, and earlier checkpoints are as they were; try a lower "
                                  "optimizer.learning_rate, or --resume from the last checkpoint with one"));
    }
}

void require_finite_weights(const MasterWeights& weights, const ParameterLayout& layout) {
    constexpr std::int64_t kPart = 1 << 22;
    std::vector<float> part;
    for (std::int64_t first = 0; first < layout.count; first += kPart) {
        part.resize(static_cast<std::size_t>(std::min(kPart, layout.count - first)));
        weights.read(first, part);
        const auto bad = std::find_if(part.begin(), part.end(), [](float value) { return !std::isfinite(value); });
        if (bad == part.end()) continue;
        throw NonFiniteError(text("--export: a weight is not finite: ", place_of(layout, first + (bad - part.begin())),
                                  "; nothing was written"));
    }
}

}  // namespace coda
