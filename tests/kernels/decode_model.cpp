#include "tests/kernels/decode_model_sm.h"

#include <algorithm>

#include "kernels/core/error.h"

namespace coda::test {

using namespace coda::hopper::decode;

DecodeModel::DecodeModel(DecodeProgram program, ModelOptions options)
    : program_(std::move(program)),
      options_(std::move(options)),
      layout_(layout_of(program_)),
      exchange_(exchange_of(program_.operands.shape, program_.grid)),
      sms_(static_cast<std::size_t>(program_.grid)),
      words_(static_cast<std::size_t>(exchange_.words)),
      panels_(2 * words_.size(), kEmpty),
      emptying_(panels_.size()),
      emptied_in_(panels_.size()),
      arrivals_(static_cast<std::size_t>(program_.grid * kEpilogueWarps)),
      random_(options_.seed) {
    const auto ring = static_cast<std::size_t>(layout_.chunks),
               entries = static_cast<std::size_t>(layout_.part_entries);
    for (std::size_t i = 0; i < sms_.size(); ++i) {
        Sm& sm = sms_[i];
        sm.number = static_cast<int>(i);
        sm.full.assign(ring, Phases(1));
        sm.empty.assign(ring, Phases(1));
        sm.chunk.assign(ring, -1);
        sm.part_of.assign(ring, {-1, -1});
        sm.used.assign(ring, false);
        sm.part_full.assign(entries, Phases(kConsumerWarps));
        sm.parts.assign(entries, std::vector<int>(kConsumerWarps, -1));
    }
}

DecodeModel::~DecodeModel() = default;

void DecodeModel::fail(const std::string& what) const { throw Error("decode model: " + what); }

int DecodeModel::planned(int sequence, int token) const {
    const int start = options_.lengths[static_cast<std::size_t>(sequence)];
    return planned_length(start > 0, start, token, program_.operands.shape.context);
}
AttentionUnits<DecodeModel::Lengths> DecodeModel::units(int token) const {
    const Shape& shape = program_.operands.shape;
    return {{this, token}, shape.batch, shape.kv_heads, shape.head_dim};
}
std::uint32_t DecodeModel::epoch(int token, int stage) const { return epoch_of(0, stages(), token, stage); }

bool DecodeModel::runs_after(int sequence, int token) const {
    const auto row = static_cast<std::size_t>(sequence);
    return options_.lengths[row] > 0 && (options_.last_steps.empty() || token < options_.last_steps[row]);
}
bool DecodeModel::leaves(Sm& sm, int token) const {
    const std::uint32_t own = epoch(token, 0) - 1;
    bool runs = false;
    for (int b = 0; b < program_.operands.shape.batch; ++b) {
        const std::uint32_t found = words_[static_cast<std::size_t>(exchange_.token + b)];
        const bool later = found != own && !options_.any_end;
        runs = runs || later || runs_after(b, static_cast<int>(found - 1) / stages());
    }
    const bool leaves = !runs || (stop_ != 0 && (stop_ == own || (options_.any_stop && stop_ > own)));
    sm.leaving = sm.leaving || leaves;
    return leaves;
}

Warp DecodeModel::consumer(Sm& sm, int warp) {
    const Shape& shape = program_.operands.shape;
    const int hd = shape.head_dim;
    std::int64_t chunks = 0, meetings = 0;
    int tiles = 0, units_done = 0;
    std::uint32_t seen = 0;
    for (int token = 0; token < options_.tokens; ++token) {
        if (token > 0) {
            co_await token_words(token);
            if (leaves(sm, token)) co_return;
            seen = epoch(token, 0) - 1;
        }
        if (warp == 0) sm.closed = token;
        for (int s = 0; s < stages(); ++s) {
            const Stage& stage = program_.stages[static_cast<std::size_t>(s)];
            const std::uint32_t now = epoch(token, s);
            if (stage.kind == StageKind::attention) {
                const auto all = units(token);
                const OwnTiles own = own_tiles(all.number(), stage.rotation, sm.number, program_.grid);
                for (int index = 0; index < own.number; ++index, ++units_done) {
                    const AttentionUnit unit = all.unit(own.tile(index));
                    co_await Until("room for a unit", [&] { return sm.attention_empty.passed(units_done ^ 1); });
                    const int length = planned(unit.sequence, token);
                    const std::int64_t qkv = exchange_.qkv + std::int64_t{unit.sequence} * shape.qkv_columns() / 2;
                    const int key = shape.q_columns() + unit.kv_head * hd;
                    if (warp < unit.blocks) {
                        co_await words("q", qkv + unit.kv_head * shape.group() * hd / 2, shape.group() * hd / 2,
                                       now - 1);
                        const int newest = (length - 1) / block_positions(hd) - unit.first_block;
                        if (newest < unit.blocks && newest % kConsumerWarps == warp) {
                            co_await words("k", qkv + key / 2, hd / 2, now - 1);
                            co_await words("v", qkv + (key + shape.kv_columns()) / 2, hd / 2, now - 1);
                        }
                        for (int block = warp; block < unit.blocks; block += kConsumerWarps) {
                            const std::int64_t n = chunks + block;
                            const auto slot = static_cast<std::size_t>(n % layout_.chunks);
                            co_await Until("an issued block", [&] { return sm.issued > n; });
                            co_await Until("a block", [&] { return sm.full[slot].passed(n / layout_.chunks); });
                            if (sm.chunk[slot] != n) fail("another chunk than the block");
                            sm.used[slot] = false;
                            sm.empty[slot].arrive();
                        }
                        const auto part = static_cast<std::size_t>(warp);
                        if (sm.unread[part] != 0) fail("a unit's sums were overwritten");
                        sm.unit[part] = units_done;
                        sm.unread[part] = kEpilogueWarps;
                    }
                    sm.attention_full.arrive();
                    chunks += unit.blocks;
                }
            } else if (stage.kind == StageKind::choose) {
                for (int b = sm.number; b < shape.batch; b += program_.grid) {
                    const auto row = static_cast<std::size_t>(b);
                    const bool alone = options_.greedy[row] || !runs_after(b, token - 1);
                    if (alone && warp != 0) continue;
                    for (int source = 0; source < program_.grid * kEpilogueWarps; ++source)
                        co_await words("the largest logits",
                                       exchange_.best + 4 * (std::int64_t{shape.batch} * source + b), 3, now - 1);
                    for (int meeting = 0; meeting < (alone ? 0 : 4); ++meeting, ++meetings) {
                        sm.consumers.arrive();
                        co_await Until("the other warps", [&] { return sm.consumers.passed(meetings); });
                    }
                    if (warp != 0) continue;
                    if (b == 0) {
                        if (token == options_.stop_after) stop_ = now;
                        publish(exchange_.token + shape.batch, 1, now);
                    }
                    publish(exchange_.token + b, 1, now);
                }
            } else {
                const OwnTiles own = own_tiles(stage.tiles, stage.rotation, sm.number, program_.grid);
                const Slices slices = slices_of(stage.columns);
                const int kept = resident_slices(slices, shape.batch);
                const InputVector input = input_of(exchange_, stage.kind);
                const bool embedded = stage.kind == StageKind::qkv && stage.embedded;
                const auto fetched = [&](int b) {
                    return !embedded &&
                           (stage.kind != StageKind::attn_out || planned(b, token) > 0 || options_.idle_words);
                };
                const auto slice_words = [&](int slice, int b) {
                    return words("its input",
                                 input.words + (std::int64_t{b} * stage.columns + slices.first_column(slice)) / 2,
                                 slices.columns_of(slice, stage.columns) / 2, now - 1);
                };
                const bool panels = has_panels(shape.batch) && !embedded;
                const auto slice_in_panels = [&](int slice, int b) {
                    return this->panels({input.panels, stage.columns, copy_of(token, s - 1), b,
                                         slices.first_column(slice), slices.columns_of(slice, stage.columns)},
                                        now - 1, seen);
                };
                const auto slice_of = [&](int slice, int b) {
                    return panels ? slice_in_panels(slice, b) : slice_words(slice, b);
                };
                const int first_tile = warp / slices.number, first_slice = warp % slices.number;
                if (stage.kind == StageKind::attn_out && awaits_arrivals(s)) {
                    seen = awaited_arrivals(now, s);
                    co_await arrivals(seen);
                }
                for (int round = 0; round < kept && first_tile < own.number; ++round)
                    for (int b = 0; b < shape.batch; ++b)
                        if (fetched(b)) co_await slice_of(first_slice + round * kConsumerWarps, b);
                const int together = tiles_together(slices, shape.batch);
                const int step = slices.number < kConsumerWarps ? kConsumerWarps / slices.number : together;
                std::int64_t n = chunks + warp;
                for (int tile = first_tile; tile < own.number; tile += step) {
                    const int end = std::min(tile + together, own.number);
                    for (int slice = first_slice; slice < slices.number; slice += kConsumerWarps) {
                        for (int b = 0; b < shape.batch && kept == 0; ++b)
                            if (fetched(b)) co_await slice_of(slice, b);
                        for (int t = tile; t < end; ++t, n += kConsumerWarps) {
                            const auto slot = static_cast<std::size_t>(n % layout_.chunks);
                            co_await Until("an issued chunk", [&] { return sm.issued > n; });
                            co_await Until("a chunk", [&] { return sm.full[slot].passed(n / layout_.chunks); });
                            if (sm.chunk[slot] != n || sm.part_of[slot].tile != t || sm.part_of[slot].slice != slice)
                                fail("another chunk than the slice");
                            sm.used[slot] = false;
                            sm.empty[slot].arrive();
                        }
                    }
                    for (int t = tile; t < end; ++t) {
                        const int count = tiles + t, entries = layout_.part_entries;
                        if (count >= entries)
                            co_await Until("room for its sums", [&] {
                                return sm.parts_read[count % kEpilogueWarps] > (count - entries) / kEpilogueWarps;
                            });
                        int& part = sm.parts[static_cast<std::size_t>(count % entries)]
                                            [static_cast<std::size_t>(warp % slices.parts())];
                        if (part != -1) fail(text("sums of tile ", part, " were overwritten by those of ", count));
                        part = count;
                        sm.part_full[static_cast<std::size_t>(count % entries)].arrive(kConsumerWarps / slices.parts());
                    }
                }
                chunks += std::int64_t{own.number} * slices.number;
                tiles += own.number;
            }
        }
    }
}

Warp DecodeModel::epilogue(Sm& sm, int warp) {
    const Shape& shape = program_.operands.shape;
    const int hd = shape.head_dim, split_words = hd + 2;
    const auto o_of = [&](int sequence, int head) {
        return exchange_.o + (std::int64_t{sequence} * shape.q_columns() + head * hd) / 2;
    };
    std::vector<std::size_t> emptied;
    std::uint32_t seen = 0;
    const auto publish_o = [&](int token, int s, int sequence, int head, int first, int columns) {
        if (!has_panels(shape.batch)) return publish(o_of(sequence, head) + first / 2, columns / 2, epoch(token, s));
        store_in_panels(
            {exchange_.o_panels, shape.q_columns(), copy_of(token, s), sequence, head * hd + first, columns},
            epoch(token, s), seen, emptied);
    };
    const auto splits_at = [&](int sequence, int head, int split) {
        return exchange_.splits + ((std::int64_t{sequence} * shape.heads + head) * kMaxSplits + split) * split_words;
    };
    int tiles = 0, units_done = 0;
    for (int token = 0; token < options_.tokens; ++token) {
        if (token > 0) {
            co_await token_words(token);
            if (leaves(sm, token)) co_return;
            seen = epoch(token, 0) - 1;
        }
        for (int s = 0; s < stages(); ++s) {
            const Stage& stage = program_.stages[static_cast<std::size_t>(s)];
            const std::uint32_t now = epoch(token, s);
            if (stage.kind == StageKind::choose) continue;
            if (stage.kind == StageKind::attention) {
                if (options_.epilogue_waits && awaits_arrivals(s)) {
                    seen = awaited_arrivals(now, s);
                    co_await arrivals(seen);
                }
                const auto all = units(token);
                const OwnTiles own = own_tiles(all.number(), stage.rotation, sm.number, program_.grid);
                for (int index = 0; index < own.number; ++index, ++units_done) {
                    const AttentionUnit unit = all.unit(own.tile(index));
                    co_await Until("a unit's sums", [&] { return sm.attention_full.passed(units_done); });
                    for (int i = 0; i < std::min(unit.blocks, kConsumerWarps); ++i) {
                        const auto part = static_cast<std::size_t>(i);
                        if (sm.unit[part] != units_done) fail("sums of another unit");
                        --sm.unread[part];
                    }
                    for (int g = 0; g < shape.group(); ++g) {
                        const int head = unit.kv_head * shape.group() + g, half = hd / 2 / kEpilogueWarps;
                        if (unit.splits.number == 1)
                            publish_o(token, s, unit.sequence, head, 2 * warp * half, 2 * half);
                        else
                            publish(splits_at(unit.sequence, head, unit.split) + warp * split_words / kEpilogueWarps,
                                    split_words / kEpilogueWarps, now);
                    }
                    sm.attention_empty.arrive();
                }
                const JoinTasks tasks{shape.heads, hd};
                const OwnJoins joins = own_joins(sm.number, warp, program_.grid);
                for (int index = joins.first; index < tasks.number(shape.batch); index += joins.step) {
                    const JoinTask task = tasks.task(index);
                    const int number = splits_of(planned(task.sequence, token), hd).number;
                    if (number == 1 || (number == 0 && !options_.idle_words)) continue;
                    for (int split = 0; split < number; ++split) {
                        const std::int64_t of = splits_at(task.sequence, task.head, split);
                        co_await words("a split", of + task.column, kJoinedColumns, now);
                        co_await words("a split's maximum and total", of + hd, 2, now);
                    }
                    publish_o(token, s, task.sequence, task.head, task.column, kJoinedColumns);
                }
                continue;
            }
            const OwnTiles own = own_tiles(stage.tiles, stage.rotation, sm.number, program_.grid);
            for (int index = 0; index < own.number; ++index) {
                const int count = tiles + index, tile = own.tile(index);
                if (count % kEpilogueWarps != warp) continue;
                const bool first = stage.kind == StageKind::attn_out;
                if ((first || stage.kind == StageKind::down) && !stage.embedded)
                    for (int b = 0; b < shape.batch; ++b)
                        co_await words("the residual",
                                       (first ? exchange_.x : exchange_.middle) +
                                           (std::int64_t{b} * shape.width + tile * kTileRows) / 2,
                                       kTileRows / 2, now - (first ? 3 : 2));
                const auto entry = static_cast<std::size_t>(count % layout_.part_entries);
                co_await Until("sums", [&] { return sm.part_full[entry].passed(count / layout_.part_entries); });
                for (int i = 0; i < slices_of(stage.columns).parts(); ++i) {
                    int& part = sm.parts[entry][static_cast<std::size_t>(i)];
                    if (part != count) fail(text("sums of tile ", part, " instead of ", count));
                    part = -1;
                }
                sm.parts_read[warp] = count / kEpilogueWarps + 1;
                co_await Until("nothing", [] { return true; });
                publish_tile(token, s, tile, seen, emptied);
                if (random_() % 4 == 0) land(emptied);
            }
            tiles += own.number;
            if (stage.kind == StageKind::down) {
                co_await Until("its arrival", [] { return true; });
                land(emptied);
                arrivals_[static_cast<std::size_t>(sm.number * kEpilogueWarps + warp)] = now;
            }
            if (stage.kind == StageKind::head) {
                const std::int64_t best =
                    exchange_.best + 4 * (std::int64_t{sm.number} * kEpilogueWarps + warp) * shape.batch;
                const int first = std::min(shape.batch, 4);  // a lane's sequences: one store after the other
                publish(best, 4 * first, now);
                co_await Until("its other sequences", [] { return true; });
                publish(best + 4 * first, 4 * (shape.batch - first), now);
            }
        }
    }
}

Warp DecodeModel::producer(Sm& sm) {
    std::int64_t n = 0;
    for (int token = 0; token < options_.tokens; ++token)
        for (const Stage& stage : program_.stages) {
            std::vector<ProductChunk> chunks;
            if (stage.kind == StageKind::attention) {
                if (token >= 2) co_await Until("a close", [&] { return sm.closed >= token - 1; });
                const auto all = units(token);
                const OwnTiles own = own_tiles(all.number(), stage.rotation, sm.number, program_.grid);
                for (int index = 0; index < own.number; ++index)
                    chunks.resize(chunks.size() + static_cast<std::size_t>(all.unit(own.tile(index)).blocks));
            } else if (is_product(stage.kind)) {
                const Slices slices = slices_of(stage.columns);
                each_chunk(slices, own_tiles(stage.tiles, stage.rotation, sm.number, program_.grid).number,
                           tiles_together(slices, program_.operands.shape.batch), [&](ProductChunk chunk) {
                               chunks.push_back(chunk);
                               return true;
                           });
            }
            for (const ProductChunk chunk : chunks) {
                const std::int64_t ring = layout_.chunks, earlier = n - layout_.in_flight;
                const auto slot = static_cast<std::size_t>(n % ring);
                if (earlier >= 0)
                    co_await Until("a chunk to land", [&] {
                        return sm.full[static_cast<std::size_t>(earlier % ring)].passed(earlier / ring);
                    });
                co_await Until("a free chunk", [&] { return sm.empty[slot].passed(n / ring ^ 1); });
                if (sm.used[slot]) fail("a chunk was overwritten");
                sm.used[slot] = true;
                sm.chunk[slot] = n;
                sm.part_of[slot] = chunk;
                sm.full[slot].arrive_expect();
                sm.landing.push_back(static_cast<int>(slot));
                co_await Until("nothing", [] { return true; });
                sm.issued = ++n;
            }
        }
    sm.all_issued = true;
}

/// Copies land in any order.
Warp DecodeModel::copies(Sm& sm) {
    while (true) {
        co_await Until("a copy", [&] { return !sm.landing.empty() || sm.all_issued; });
        if (sm.landing.empty()) co_return;
        const std::size_t i = random_() % sm.landing.size();
        sm.full[static_cast<std::size_t>(sm.landing[i])].land();
        sm.landing.erase(sm.landing.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

}  // namespace coda::test
