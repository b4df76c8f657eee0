#include "tests/kernels/decode_model_sm.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/hopper/decode/plan/input_share.h"

namespace coda::test {

using namespace coda::hopper::decode;

DecodeModel::DecodeModel(DecodePlan plan, ModelOptions options)
    : plan_(std::move(plan)),
      options_(std::move(options)),
      layout_(layout_of(plan_)),
      exchange_(exchange_of(plan_.operands.shape, plan_.grid)),
      sms_(static_cast<std::size_t>(plan_.grid)),
      words_(static_cast<std::size_t>(exchange_.words)),
      lamport_(2 * words_.size(), kEmpty),
      emptying_(lamport_.size()),
      emptied_in_(lamport_.size()),
      arrivals_(static_cast<std::size_t>(plan_.grid * kEpilogueWarps)),
      random_(options_.seed) {
    const auto ring = static_cast<std::size_t>(layout_.stages),
               entries = static_cast<std::size_t>(layout_.partial_entries);
    for (std::size_t i = 0; i < sms_.size(); ++i) {
        Sm& sm = sms_[i];
        sm.number = static_cast<int>(i);
        sm.full.assign(ring, Phases(1));
        sm.empty.assign(ring, Phases(most_stage_slices(plan_.operands.shape.int4)));
        sm.stage.assign(ring, -1);
        sm.k_tile.assign(ring, {-1, -1});
        sm.used.assign(ring, 0);
        sm.partials_full.assign(entries, Phases(kConsumerWarps));
        sm.partials.assign(entries, std::vector<int>(kConsumerWarps, -1));
        sm.unread_partials.assign(entries, 0);
    }
}

DecodeModel::~DecodeModel() = default;

void DecodeModel::fail(const std::string& what) const { throw Error("decode model: " + what); }

int DecodeModel::planned(int sequence, int step) const {
    const int start = options_.lengths[static_cast<std::size_t>(sequence)];
    return planned_length(start > 0, start, step, plan_.operands.shape.context);
}
int DecodeModel::visible(int sequence, int step) const {
    return visible_positions(planned(sequence, step), plan_.operands.shape.window);
}
AttentionTiles<DecodeModel::Visible> DecodeModel::attention_tiles(int step) const {
    const Shape& shape = plan_.operands.shape;
    return {{this, step}, shape.batch, shape.kv_heads, shape.head_dim};
}
std::uint32_t DecodeModel::epoch(int step, int op) const { return epoch_of(1, ops(), step, op); }

void DecodeModel::lend(Sm& sm, int warp) {
    const auto w = static_cast<std::size_t>(warp);
    sm.lends[w] = true;
    sm.delivered[w].arrive_expect();
    sms_[static_cast<std::size_t>(sm.number ^ 1)].lent[w].arrive();
}
void DecodeModel::deliver(Sm& sm, int warp, std::int64_t what) {
    const auto w = static_cast<std::size_t>(warp);
    Sm& partner = sms_[static_cast<std::size_t>(sm.number ^ 1)];
    if (!partner.lends[w]) fail("a warp stored in its partner's input, which was not lent");
    if (partner.unread[w] != 0) fail("an input was written over attention's sums before they were read");
    partner.received[w] = what;
    partner.delivered[w].land();
}
void DecodeModel::receive(Sm& sm, int warp, std::int64_t what) const {
    const auto w = static_cast<std::size_t>(warp);
    if (sm.received[w] != what) fail("a partner delivered another slice");
    sm.lends[w] = false;
}

bool DecodeModel::runs_after(int sequence, int step) const {
    const auto row = static_cast<std::size_t>(sequence);
    return options_.lengths[row] > 0 && (options_.last_steps.empty() || step < options_.last_steps[row]);
}
bool DecodeModel::leaves(Sm& sm, int step) const {
    const std::uint32_t own = epoch(step, 0) - 1;
    bool runs = false;
    for (int b = 0; b < plan_.operands.shape.batch; ++b) {
        const std::uint32_t found = words_[static_cast<std::size_t>(exchange_.token + b)];
        const bool later = found != own && !options_.any_end;
        runs = runs || later || runs_after(b, static_cast<int>(found - 1) / ops());
    }
    const bool leaves = !runs || (stop_ != 0 && (stop_ == own || (options_.any_stop && stop_ > own)));
    sm.exiting = sm.exiting || leaves;
    return leaves;
}

Warp DecodeModel::consumer(Sm& sm, int warp) {
    const Shape& shape = plan_.operands.shape;
    const int hd = shape.head_dim;
    std::int64_t stages = 0, meetings = 0, exchanges = 0;
    int tiles = 0, tiles_done = 0;
    std::uint32_t seen = 0;
    const bool pairs = pairs_sms(shape, plan_.grid);
    const auto passed = [&exchanges](const Phases& phases) {
        return [&exchanges, &phases] { return phases.passed(exchanges); };
    };
    const auto loan = passed(sm.lent[static_cast<std::size_t>(warp)]),
               delivery = passed(sm.delivered[static_cast<std::size_t>(warp)]);
    for (int step = 0; step < options_.steps; ++step) {
        if (step > 0) {
            co_await token_words(step);
            if (leaves(sm, step)) co_return;
            seen = epoch(step, 0) - 1;
        }
        if (warp == 0) sm.committed = step;
        for (int s = 0; s < ops(); ++s) {
            const DecodeOp& op = plan_.ops[static_cast<std::size_t>(s)];
            const std::uint32_t now = epoch(step, s);
            if (op.kind == OpKind::attention) {
                if (awaits_arrivals(s)) {
                    seen = awaited_arrivals(now, s);
                    co_await arrivals(seen);
                }
                const auto all = attention_tiles(step);
                const OwnTiles own = own_tiles(all.number(), op.rotation, sm.number, plan_.grid);
                for (int index = 0; index < own.number; ++index, ++tiles_done) {
                    const AttentionTile tile = all.tile(own.tile(index));
                    if (options_.consumers_wait && shape.int4)
                        co_await Until("its sums to be read",
                                       [&] { return sm.attention_empty.passed(tiles_done ^ 1); });
                    if (sm.unread[static_cast<std::size_t>(warp)] != 0)
                        fail("queries were written over attention's sums before they were read");
                    const int visible = this->visible(tile.sequence, step);
                    const std::int64_t qkv = exchange_.qkv + std::int64_t{tile.sequence} * shape.qkv_columns() / 2;
                    const int key = shape.q_columns() + tile.kv_head * hd;
                    if (warp < tile.blocks) {
                        co_await words("q", qkv + tile.kv_head * shape.group() * hd / 2, shape.group() * hd / 2,
                                       now - 1);
                        const auto squares = [&](int sequence, int head, int heads) {
                            const int of_head = hd / kTileRows;
                            return words("squares",
                                         exchange_.squares + sequence * shape.rotated_tiles() + head * of_head,
                                         heads * of_head, now - 1);
                        };
                        const auto newest_words = [&](int sequence) {
                            return exchange_.newest + sequence * 2 * shape.kv_columns() + tile.kv_head * hd;
                        };
                        if (shape.head_norms)
                            co_await squares(tile.sequence, tile.kv_head * shape.group(), shape.group());
                        const int newest = (visible - 1) / block_positions(hd) - tile.first_block;
                        const bool has_newest = newest < tile.blocks && newest % kConsumerWarps == warp;
                        if (has_newest && shape.head_norms) {
                            co_await squares(tile.sequence, shape.heads + tile.kv_head, 1);
                            const std::int64_t row = newest_words(tile.sequence);
                            co_await words("k", row, hd, now - 1);
                            co_await words("v", row + shape.kv_columns(), hd, now - 1);
                        } else if (has_newest) {
                            co_await words("k", qkv + key / 2, hd / 2, now - 1);
                            co_await words("v", qkv + (key + shape.kv_columns()) / 2, hd / 2, now - 1);
                        }
                        for (int i = 1; i <= op.earlier(tile.sequence); ++i) {
                            const int position = visible - 1 - i - tile.first_block * block_positions(hd);
                            const int block = position / block_positions(hd);
                            if (position < 0 || block >= tile.blocks || block % kConsumerWarps != warp) continue;
                            if (shape.head_norms) {
                                const std::int64_t row = newest_words(tile.sequence - i);
                                co_await squares(tile.sequence - i, tile.kv_head * shape.group(), shape.group());
                                co_await squares(tile.sequence - i, shape.heads + tile.kv_head, 1);
                                co_await words("an earlier k", row, hd, now - 1);
                                co_await words("an earlier v", row + shape.kv_columns(), hd, now - 1);
                                continue;
                            }
                            const std::int64_t earlier = qkv - std::int64_t{i} * shape.qkv_columns() / 2;
                            co_await words("an earlier k", earlier + key / 2, hd / 2, now - 1);
                            co_await words("an earlier v", earlier + (key + shape.kv_columns()) / 2, hd / 2, now - 1);
                        }
                        for (int block = warp; block < tile.blocks; block += kConsumerWarps) {
                            const std::int64_t n = stages + block;
                            const auto slot = static_cast<std::size_t>(n % layout_.stages);
                            co_await Until("an issued block", [&] { return sm.issued > n; });
                            co_await Until("a block", [&] { return sm.full[slot].passed(n / layout_.stages); });
                            if (sm.stage[slot] != n) fail("another stage than the block");
                            --sm.used[slot];
                            sm.empty[slot].arrive(most_stage_slices(shape.int4));
                        }
                        const auto partial = static_cast<std::size_t>(warp);
                        sm.tile[partial] = tiles_done;
                        sm.unread[partial] = kEpilogueWarps;
                    }
                    sm.attention_full.arrive();
                    if (options_.consumers_wait && !shape.int4)
                        co_await Until("its sums to be read", [&] { return sm.attention_empty.passed(tiles_done); });
                    stages += tile.blocks;
                }
            } else if (op.kind == OpKind::choose) {
                for (int b = sm.number; b < shape.batch; b += plan_.grid) {
                    const auto row = static_cast<std::size_t>(b);
                    const bool alone = options_.greedy[row] || !runs_after(b, step - 1);
                    if (alone && warp != 0) continue;
                    for (int source = 0; source < plan_.grid * kEpilogueWarps; ++source)
                        co_await words("the largest logits",
                                       exchange_.best + 4 * (std::int64_t{shape.batch} * source + b), 3, now - 1);
                    for (int meeting = 0; meeting < (alone ? 0 : 4); ++meeting, ++meetings) {
                        sm.consumers.arrive();
                        co_await Until("the other warps", [&] { return sm.consumers.passed(meetings); });
                    }
                    if (warp != 0) continue;
                    if (b == 0) {
                        if (step == options_.stop_after) stop_ = now;
                        publish(exchange_.token + shape.batch, 1, now);
                    }
                    publish(exchange_.token + b, 1, now);
                }
            } else {
                const OwnTiles own = own_tiles(op.tiles, op.rotation, sm.number, plan_.grid);
                const Slices slices = shape.slices(op.columns);
                const int kept = resident_slices(slices, shape.batch);
                const InputVector input = input_of(exchange_, op.kind);
                const bool embedded = op.kind == OpKind::qkv && op.embedded;
                const auto fetched = [&](int b) {
                    return !embedded && (op.kind != OpKind::attn_out || planned(b, step) > 0 || options_.idle_words);
                };
                const auto slice_words = [&](int slice, int b) {
                    return words("its input",
                                 input.words + (std::int64_t{b} * op.columns + slices.first_column(slice)) / 2,
                                 slices.columns_of(slice, op.columns) / 2, now - 1);
                };
                const bool lamport = uses_lamport(shape.batch) && !embedded;
                const auto slice_in_panels = [&](int slice, int b) {
                    return this->lamport({input.lamport, op.columns, buffer_of(step, s - 1), b,
                                          slices.first_column(slice), slices.columns_of(slice, op.columns)},
                                         now - 1, seen);
                };
                const auto slice_of = [&](int slice, int b) {
                    return lamport ? slice_in_panels(slice, b) : slice_words(slice, b);
                };
                const int first_tile = warp / slices.number, first_slice = warp % slices.number;
                if (op.kind == OpKind::attn_out && options_.consumers_wait && shape.int4)
                    co_await Until("its sums to be read", [&] { return sm.attention_empty.passed(tiles_done ^ 1); });
                if (sm.unread[static_cast<std::size_t>(warp)] != 0)
                    fail("an input was written over attention's sums before they were read");
                const int partner_tiles = pairs && op.int4 && !embedded
                                              ? own_tiles(op.tiles, op.rotation, sm.number ^ 1, plan_.grid).number
                                              : 0;
                const auto octets = [&](int tile) {
                    return tile < partner_tiles ? octets_of_rank(sm.number % 2) : OctetRange{0, octets_of(shape.batch)};
                };
                const bool shares_kept = kept > 0 && first_tile < std::min(own.number, partner_tiles);
                if (shares_kept) lend(sm, warp);
                for (int round = 0; round < kept && first_tile < own.number; ++round)
                    for (int b = octets(first_tile).first_sequence(); b < octets(first_tile).end_sequence(shape.batch);
                         ++b)
                        if (fetched(b)) co_await slice_of(first_slice + round * kConsumerWarps, b);
                if (shares_kept) {
                    if (options_.awaits_loan) co_await Until("its partner's input", loan);
                    deliver(sm, warp, now);
                    co_await Until("its partner's sequences", delivery);
                    receive(sm, warp, now);
                    ++exchanges;
                }
                const int together = tiles_together(slices, shape.batch);
                const int apart = slices.number < kConsumerWarps ? kConsumerWarps / slices.number : together;
                const int readers = stage_slices(slices, op.int4);
                std::int64_t n = stages + warp / readers;
                for (int tile = first_tile; tile < own.number; tile += apart) {
                    const int end = std::min(tile + together, own.number);
                    for (int slice = first_slice; slice < slices.number; slice += kConsumerWarps) {
                        const bool shares = kept == 0 && tile < partner_tiles;
                        if (shares) lend(sm, warp);
                        for (int b = octets(tile).first_sequence();
                             kept == 0 && b < octets(tile).end_sequence(shape.batch); ++b)
                            if (fetched(b)) co_await slice_of(slice, b);
                        if (shares) {
                            const std::int64_t what = (std::int64_t{now} << 32) + (std::int64_t{tile} << 16) + slice;
                            if (options_.awaits_loan) co_await Until("its partner's input", loan);
                            deliver(sm, warp, what);
                            co_await Until("its partner's sequences", delivery);
                            receive(sm, warp, what);
                            ++exchanges;
                        }
                        for (int t = tile; t < end; ++t, n += kConsumerWarps / readers) {
                            const auto slot = static_cast<std::size_t>(n % layout_.stages);
                            co_await Until("an issued stage", [&] { return sm.issued > n; });
                            co_await Until("a stage", [&] { return sm.full[slot].passed(n / layout_.stages); });
                            if (sm.stage[slot] != n || sm.k_tile[slot].tile != t ||
                                sm.k_tile[slot].slice != slice - slice % readers)
                                fail("another stage than the slice");
                            --sm.used[slot];
                            sm.empty[slot].arrive(most_stage_slices(shape.int4) / readers);
                        }
                    }
                    for (int t = tile; t < end; ++t) {
                        const int count = tiles + t, entries = layout_.partial_entries;
                        if (count >= entries)
                            co_await Until("room for its sums", [&] {
                                const int first = splits_tiles(shape.batch) ? 0 : count % kEpilogueWarps;
                                const int last =
                                    splits_tiles(shape.batch) && options_.awaits_both ? kEpilogueWarps - 1 : first;
                                return std::min(sm.partials_read[first], sm.partials_read[last]) > count - entries;
                            });
                        int& partial = sm.partials[static_cast<std::size_t>(count % entries)]
                                                  [static_cast<std::size_t>(warp % slices.partials())];
                        if (partial != -1)
                            fail(text("sums of tile ", partial, " were overwritten by those of ", count));
                        partial = count;
                        sm.unread_partials[static_cast<std::size_t>(count % entries)] =
                            splits_tiles(shape.batch) ? kEpilogueWarps : 1;
                        sm.partials_full[static_cast<std::size_t>(count % entries)].arrive(kConsumerWarps /
                                                                                           slices.partials());
                    }
                }
                stages += std::int64_t{own.number} * (slices.number / readers);
                tiles += own.number;
            }
        }
    }
}

Warp DecodeModel::producer(Sm& sm) {
    std::int64_t n = 0;
    for (int step = 0; step < options_.steps; ++step)
        for (const DecodeOp& op : plan_.ops) {
            std::vector<KTile> stages;
            if (op.kind == OpKind::attention) {
                if (step >= 2) co_await Until("a close", [&] { return sm.committed >= step - 1; });
                const auto all = attention_tiles(step);
                const OwnTiles own = own_tiles(all.number(), op.rotation, sm.number, plan_.grid);
                for (int index = 0; index < own.number; ++index)
                    stages.resize(stages.size() + static_cast<std::size_t>(all.tile(own.tile(index)).blocks));
            } else if (is_gemm(op.kind)) {
                const Slices slices = plan_.operands.shape.slices(op.columns);
                each_k_tile(slices, own_tiles(op.tiles, op.rotation, sm.number, plan_.grid).number,
                            tiles_together(slices, plan_.operands.shape.batch), stage_slices(slices, op.int4),
                            [&](KTile stage) {
                                stages.push_back(stage);
                                return true;
                            });
            }
            for (const KTile stage : stages) {
                const std::int64_t ring = layout_.stages, earlier = n - layout_.in_flight;
                const auto slot = static_cast<std::size_t>(n % ring);
                if (earlier >= 0)
                    co_await Until("a stage to land", [&] {
                        return sm.full[static_cast<std::size_t>(earlier % ring)].passed(earlier / ring);
                    });
                co_await Until("a free stage", [&] { return sm.empty[slot].passed(n / ring ^ 1); });
                if (sm.used[slot] != 0) fail("a stage was overwritten");
                sm.used[slot] = is_gemm(op.kind) ? stage_slices(plan_.operands.shape.slices(op.columns), op.int4) : 1;
                sm.stage[slot] = n;
                sm.k_tile[slot] = stage;
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
