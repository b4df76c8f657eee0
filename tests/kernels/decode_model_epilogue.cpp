// The epilogue warps of the model.
#include <algorithm>

#include "kernels/core/error.h"
#include "tests/kernels/decode_model_sm.h"

namespace coda::test {

using namespace coda::hopper::decode;

Warp DecodeModel::epilogue(Sm& sm, int warp) {
    const Shape& shape = plan_.operands.shape;
    const int hd = shape.head_dim, split_ll = hd + 2;
    const auto o_of = [&](int sequence, int head) {
        return exchange_.o + (std::int64_t{sequence} * shape.q_columns() + head * hd) / 2;
    };
    const int each = warp_sequences(octets_of(shape.batch));
    const int first_sequence = splits_tiles(shape.batch) ? warp * each : 0;
    const int end_sequence = splits_tiles(shape.batch) ? std::min(first_sequence + each, shape.batch) : shape.batch;
    std::vector<std::size_t> emptied;
    std::uint32_t seen = 0;
    const auto publish_o = [&](int step, int s, int sequence, int head, int first, int columns) {
        if (!uses_lamport(shape.batch)) return publish(o_of(sequence, head) + first / 2, columns / 2, epoch(step, s));
        store_lamport(
            {exchange_.o_lamport, shape.q_columns(), buffer_of(step, s), sequence, head * hd + first, columns},
            epoch(step, s), seen, emptied);
    };
    const auto splits_at = [&](int sequence, int head, int split) {
        return exchange_.splits + ((std::int64_t{sequence} * shape.heads + head) * kMaxSplits + split) * split_ll;
    };
    int tiles = 0, tiles_done = 0;
    for (int step = 0; step < options_.steps; ++step) {
        if (step > 0) {
            co_await token_words(step);
            if (leaves(sm, step)) co_return;
            seen = epoch(step, 0) - 1;
        }
        for (int s = 0; s < ops(); ++s) {
            const DecodeOp& op = plan_.ops[static_cast<std::size_t>(s)];
            const std::uint32_t now = epoch(step, s);
            if (op.kind == OpKind::choose) continue;
            if (op.kind == OpKind::attention) {
                if (options_.epilogue_waits && awaits_arrivals(s)) {
                    seen = awaited_arrivals(now, s);
                    co_await arrivals(seen);
                }
                const auto all = attention_tiles(step);
                const OwnTiles own = own_tiles(all.number(), op.rotation, sm.number, plan_.grid);
                for (int index = 0; index < own.number; ++index, ++tiles_done) {
                    const AttentionTile tile = all.tile(own.tile(index));
                    co_await Until("a tile's sums", [&] { return sm.attention_full.passed(tiles_done); });
                    for (int i = 0; i < std::min(tile.blocks, kConsumerWarps); ++i) {
                        const auto partial = static_cast<std::size_t>(i);
                        if (sm.tile[partial] != tiles_done) fail("sums of another tile");
                        --sm.unread[partial];
                    }
                    for (int g = 0; g < shape.group(); ++g) {
                        const int head = tile.kv_head * shape.group() + g, half = hd / 2 / kEpilogueWarps;
                        if (tile.splits.number == 1)
                            publish_o(step, s, tile.sequence, head, 2 * warp * half, 2 * half);
                        else
                            publish(splits_at(tile.sequence, head, tile.split) + warp * split_ll / kEpilogueWarps,
                                    split_ll / kEpilogueWarps, now);
                    }
                    sm.attention_empty.arrive();
                }
                const ReduceTasks tasks{shape.heads, hd};
                const OwnReductions joins = own_reductions(sm.number, warp, plan_.grid);
                for (int index = joins.first; index < tasks.number(shape.batch); index += joins.step) {
                    const ReduceTask task = tasks.task(index);
                    const int number = splits_of(visible(task.sequence, step), hd).number;
                    if (number == 1 || (number == 0 && !options_.idle_words)) continue;
                    for (int split = 0; split < number; ++split) {
                        const std::int64_t of = splits_at(task.sequence, task.head, split);
                        co_await words("a split", of + task.column, kReducedColumns, now);
                        co_await words("a split's maximum and total", of + hd, 2, now);
                    }
                    publish_o(step, s, task.sequence, task.head, task.column, kReducedColumns);
                }
                continue;
            }
            const OwnTiles own = own_tiles(op.tiles, op.rotation, sm.number, plan_.grid);
            for (int index = 0; index < own.number; ++index) {
                const int count = tiles + index, tile = own.tile(index);
                if (!splits_tiles(shape.batch) && count % kEpilogueWarps != warp) continue;
                const bool first = op.kind == OpKind::attn_out;
                if ((first || op.kind == OpKind::down) && !op.embedded)
                    for (int b = first_sequence; b < end_sequence; ++b)
                        co_await words("the residual",
                                       (first ? exchange_.x : exchange_.middle) +
                                           (std::int64_t{b} * shape.width + tile * kTileRows) / 2,
                                       kTileRows / 2, now - (first ? 3 : 2));
                const auto entry = static_cast<std::size_t>(count % layout_.partial_entries);
                co_await Until("sums", [&] { return sm.partials_full[entry].passed(count / layout_.partial_entries); });
                for (int i = 0; i < shape.slices(op.columns).partials(); ++i) {
                    const int partial = sm.partials[entry][static_cast<std::size_t>(i)];
                    if (partial != count) fail(text("sums of tile ", partial, " instead of ", count));
                }
                if (--sm.unread_partials[entry] == 0) std::fill_n(sm.partials[entry].begin(), kConsumerWarps, -1);
                sm.partials_read[warp] = count + 1;
                co_await Until("nothing", [] { return true; });
                for (int b = first_sequence; b < end_sequence; ++b) publish_tile({step, s, tile, b}, seen, emptied);
                if (random_() % 4 == 0) land(emptied);
            }
            tiles += own.number;
            if (op.kind == OpKind::down) {
                co_await Until("its arrival", [] { return true; });
                land(emptied);
                arrivals_[static_cast<std::size_t>(sm.number * kEpilogueWarps + warp)] = now;
            }
            if (op.kind == OpKind::head) {
                // A lane's sequences one after the other; of half of the batch, in the other warp's place too.
                for (int b = first_sequence; b < end_sequence; ++b) {
                    if (b % kTaskSequences == 0) co_await Until("its other sequences", [] { return true; });
                    for (int w = 0; w < kEpilogueWarps; ++w)
                        if (w == warp || splits_tiles(shape.batch))
                            publish(
                                exchange_.best + 4 * ((std::int64_t{sm.number} * kEpilogueWarps + w) * shape.batch + b),
                                4, now);
                }
            }
        }
    }
}

}  // namespace coda::test
