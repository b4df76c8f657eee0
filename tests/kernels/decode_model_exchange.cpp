// What the warps of the model hand to each other: words, panels and arrivals, of which it keeps the epochs. Words and
// panels are there at once; that a panel's place is empty again may take until the warp's arrival says so.
#include <algorithm>

#include "kernels/core/error.h"
#include "tests/kernels/decode_model.h"

namespace coda::test {

using namespace coda::hopper::decode;

Until DecodeModel::words(const char* what, std::int64_t first, std::int64_t count, std::uint32_t epoch) {
    return {what, [this, what, at = first, end = first + count, epoch]() mutable {
                for (; at < end; ++at) {
                    const std::uint32_t found = words_[static_cast<std::size_t>(at)];
                    if (found > epoch) fail(text(what, " of epoch ", epoch, " was overwritten in epoch ", found));
                    if (found < epoch) return false;
                }
                return true;
            }};
}
Until DecodeModel::token_words(int token) {
    return {"the token", [this, wanted = epoch(token, 0) - 1] {
                for (int b = 0; b <= program_.operands.shape.batch; ++b)
                    if (words_[static_cast<std::size_t>(exchange_.token + b)] < wanted) return false;
                return true;
            }};
}
void DecodeModel::publish(std::int64_t first, std::int64_t count, std::uint32_t epoch) {
    std::fill_n(words_.begin() + first, count, epoch);
}

std::size_t DecodeModel::in_panel(const PanelColumns& of, int column) const {
    return static_cast<std::size_t>(2 * (of.vector + of.copy * exchange_.panel_words) +
                                    panel_offset(slices_of(of.width), of.sequence, column) / 4);
}
void DecodeModel::store_in_panels(const PanelColumns& to, std::uint32_t epoch, std::uint32_t seen,
                                  std::vector<std::size_t>& pending) {
    PanelColumns emptied = to;
    emptied.copy = emptied_copy(to.copy);
    for (int column = to.first; column < to.first + to.columns; column += 2) {
        const std::size_t at = in_panel(to, column);
        if (emptying_[at]) fail(text("a panel of epoch ", epoch, " is stored before it is empty"));
        if (options_.checks_order && emptied_in_[at] > seen)
            fail(text("a panel of epoch ", epoch, " is stored with no order after its emptying"));
        panels_[at] = epoch;
        pending.push_back(in_panel(emptied, column));
        const std::uint32_t earlier = panels_[pending.back()];
        if (options_.checks_order && earlier != kEmpty && earlier > seen)
            fail(text("a panel of epoch ", earlier, " is emptied with no order after its store"));
        emptying_[pending.back()] = true;
        emptied_in_[pending.back()] = epoch;
    }
}
void DecodeModel::land(std::vector<std::size_t>& pending) {
    for (const std::size_t at : pending) {
        panels_[at] = kEmpty;
        emptying_[at] = false;
    }
    pending.clear();
}
Until DecodeModel::panels(PanelColumns of, std::uint32_t epoch, std::uint32_t seen) {
    return {"its input", [this, of, end = of.first + of.columns, epoch, seen]() mutable {
                for (; of.first < end; of.first += 2) {
                    const std::size_t at = in_panel(of, of.first);
                    if (options_.checks_order && emptied_in_[at] > seen)
                        fail(text("a panel of epoch ", epoch, " is read with no order after its emptying"));
                    const std::uint32_t found = panels_[at];
                    if (found == kEmpty) return false;
                    if (found != epoch) fail(text("a panel has epoch ", found, " instead of ", epoch));
                }
                return true;
            }};
}
bool DecodeModel::awaits_arrivals(int stage) const {
    return has_panels(program_.operands.shape.batch) && options_.arrivals_before > 0 &&
           stage >= kLayerStages * options_.arrivals_before;
}
std::uint32_t DecodeModel::awaited_arrivals(std::uint32_t now, int stage) const {
    const int since = stage % kLayerStages + 1 + kLayerStages * (options_.arrivals_before - 1);
    return now - static_cast<std::uint32_t>(since);
}
Until DecodeModel::arrivals(std::uint32_t epoch) {
    return {"the other SMs to be done with a layer", [this, epoch] {
                return std::all_of(arrivals_.begin(), arrivals_.end(), [=](std::uint32_t at) { return at >= epoch; });
            }};
}

void DecodeModel::publish_tile(int token, int s, int tile, std::uint32_t seen, std::vector<std::size_t>& pending) {
    const Shape& shape = program_.operands.shape;
    const Stage& stage = program_.stages[static_cast<std::size_t>(s)];
    const std::uint32_t now = epoch(token, s);
    const bool panels = has_panels(shape.batch);
    const auto to_panels = [&](std::int64_t vector, int width, int sequence, int first, int columns) {
        store_in_panels({vector, width, copy_of(token, s), sequence, first, columns}, now, seen, pending);
    };
    for (int b = 0; b < shape.batch; ++b) {
        const auto to = [&](std::int64_t vector, std::int64_t width, int first, int columns) {
            publish(vector + (b * width + first) / 2, columns / 2, now);
        };
        const int row = tile * kTileRows;
        switch (stage.kind) {
            case StageKind::qkv: to(exchange_.qkv, shape.qkv_columns(), row, kTileRows); break;
            case StageKind::attn_out:
                to(exchange_.middle, shape.width, row, kTileRows);
                if (panels) to_panels(exchange_.middle_panels, shape.width, b, row, kTileRows);
                break;
            case StageKind::gate_up:
                if (panels)
                    to_panels(exchange_.y_panels, shape.feed_forward, b, row / 2, kTileRows / 2);
                else
                    to(exchange_.y, shape.feed_forward, row / 2, kTileRows / 2);
                break;
            case StageKind::down:
                to(exchange_.x, shape.width, row, kTileRows);
                if (panels) to_panels(exchange_.x_panels, shape.width, b, row, kTileRows);
                break;
            default: break;
        }
    }
}

}  // namespace coda::test
