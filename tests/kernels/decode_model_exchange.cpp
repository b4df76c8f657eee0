// What the warps of the model hand to each other: words, Lamport buffers and arrivals, of which it keeps the epochs.
// LlPair and Lamport buffers are there at once; that a Lamport buffer's place is empty again may take until the warp's
// arrival says so.
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
Until DecodeModel::token_words(int step) {
    return {"the token", [this, wanted = epoch(step, 0) - 1] {
                for (int b = 0; b <= plan_.operands.shape.batch; ++b)
                    if (words_[static_cast<std::size_t>(exchange_.token + b)] < wanted) return false;
                return true;
            }};
}
void DecodeModel::publish(std::int64_t first, std::int64_t count, std::uint32_t epoch) {
    std::fill_n(words_.begin() + first, count, epoch);
}

std::size_t DecodeModel::in_lamport(const LamportColumns& of, int column) const {
    return static_cast<std::size_t>(2 * (of.vector + of.copy * exchange_.lamport_words) +
                                    lamport_offset(plan_.operands.shape.slices(of.width),
                                                   octets_of(plan_.operands.shape.batch), of.sequence, column) /
                                        4);
}
void DecodeModel::store_lamport(const LamportColumns& to, std::uint32_t epoch, std::uint32_t seen,
                                std::vector<std::size_t>& pending) {
    LamportColumns emptied = to;
    emptied.copy = emptied_buffer(to.copy);
    for (int column = to.first; column < to.first + to.columns; column += 2) {
        const std::size_t at = in_lamport(to, column);
        if (emptying_[at]) fail(text("a Lamport buffer of epoch ", epoch, " is stored before it is empty"));
        if (options_.checks_order && emptied_in_[at] > seen)
            fail(text("a Lamport buffer of epoch ", epoch, " is stored with no order after its emptying"));
        lamport_[at] = epoch;
        pending.push_back(in_lamport(emptied, column));
        const std::uint32_t earlier = lamport_[pending.back()];
        if (options_.checks_order && earlier != kEmpty && earlier > seen)
            fail(text("a Lamport buffer of epoch ", earlier, " is emptied with no order after its store"));
        emptying_[pending.back()] = true;
        emptied_in_[pending.back()] = epoch;
    }
}
void DecodeModel::land(std::vector<std::size_t>& pending) {
    for (const std::size_t at : pending) {
        lamport_[at] = kEmpty;
        emptying_[at] = false;
    }
    pending.clear();
}
Until DecodeModel::lamport(LamportColumns of, std::uint32_t epoch, std::uint32_t seen) {
    return {"its input", [this, of, end = of.first + of.columns, epoch, seen]() mutable {
                for (; of.first < end; of.first += 2) {
                    const std::size_t at = in_lamport(of, of.first);
                    if (options_.checks_order && emptied_in_[at] > seen)
                        fail(text("a Lamport buffer of epoch ", epoch, " is read with no order after its emptying"));
                    const std::uint32_t found = lamport_[at];
                    if (found == kEmpty) return false;
                    if (found != epoch) fail(text("a Lamport buffer has epoch ", found, " instead of ", epoch));
                }
                return true;
            }};
}
bool DecodeModel::awaits_arrivals(int op) const {
    return uses_lamport(plan_.operands.shape.batch) && options_.arrivals_before > 0 &&
           op >= kLayerOps * options_.arrivals_before;
}
std::uint32_t DecodeModel::awaited_arrivals(std::uint32_t now, int op) const {
    const int since = op % kLayerOps + 1 + kLayerOps * (options_.arrivals_before - 1);
    return now - static_cast<std::uint32_t>(since);
}
Until DecodeModel::arrivals(std::uint32_t epoch) {
    return {"the other SMs to be done with a layer", [this, epoch] {
                return std::all_of(arrivals_.begin(), arrivals_.end(), [=](std::uint32_t at) { return at >= epoch; });
            }};
}

void DecodeModel::publish_tile(const TileResult& of, std::uint32_t seen, std::vector<std::size_t>& pending) {
    const Shape& shape = plan_.operands.shape;
    const DecodeOp& op = plan_.ops[static_cast<std::size_t>(of.op)];
    const std::uint32_t now = epoch(of.step, of.op);
    const int b = of.sequence, tile = of.tile, row = tile * kTileRows;
    const bool lamport = uses_lamport(shape.batch);
    const auto to_panels = [&](std::int64_t vector, int width, int first, int columns) {
        store_lamport({vector, width, buffer_of(of.step, of.op), b, first, columns}, now, seen, pending);
    };
    const auto to = [&](std::int64_t vector, std::int64_t width, int first, int columns) {
        publish(vector + (b * width + first) / 2, columns / 2, now);
    };
    switch (op.kind) {
        case OpKind::qkv:
            if (shape.head_norms && tile < shape.rotated_tiles())
                publish(exchange_.squares + b * shape.rotated_tiles() + tile, 1, now);
            if (shape.head_norms && row >= shape.q_columns())
                publish(exchange_.newest + b * 2 * shape.kv_columns() + row - shape.q_columns(), kTileRows, now);
            else
                to(exchange_.qkv, shape.qkv_columns(), row, kTileRows);
            break;
        case OpKind::attn_out:
            to(exchange_.middle, shape.width, row, kTileRows);
            if (lamport) to_panels(exchange_.middle_lamport, shape.width, row, kTileRows);
            break;
        case OpKind::gate_up:
            if (lamport)
                to_panels(exchange_.y_lamport, shape.feed_forward, row / 2, kTileRows / 2);
            else
                to(exchange_.y, shape.feed_forward, row / 2, kTileRows / 2);
            break;
        case OpKind::down:
            to(exchange_.x, shape.width, row, kTileRows);
            if (lamport) to_panels(exchange_.x_lamport, shape.width, row, kTileRows);
            break;
        default: break;
    }
}

}  // namespace coda::test
