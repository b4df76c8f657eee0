// StoreKeyValue and DecodeAttention of the Hopper executor against cpu::run. Caches have equal bits. o is rounded once
// on either side from fp32 sums of another order: one step of bf16.
#include <cmath>

#include "kernels/cpu/run.h"
#include "tests/hopper/gpu_copy.h"

using namespace coda;
using namespace coda::test;

namespace {

struct Sizes {
    std::int64_t sequences, context, heads, kv_heads, head_dim, gap = 0;
};

template <class Op>
Op on_cache(Buffers& buffers, const Sizes& sizes, std::int64_t rows) {
    const std::int64_t columns = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim;
    const std::int64_t cache_rows = sizes.sequences * sizes.kv_heads * sizes.context;
    Op op;
    op.qkv = buffers.random(DType::bf16, rows, columns, -2, 2, columns + sizes.gap);
    op.keys = buffers.random(DType::bf16, cache_rows, sizes.head_dim, -1, 1, sizes.head_dim + sizes.gap);
    op.values = buffers.random(DType::bf16, cache_rows, sizes.head_dim, -1, 1, sizes.head_dim + sizes.gap);
    op.context = sizes.context;
    op.heads = sizes.heads;
    op.kv_heads = sizes.kv_heads;
    op.head_dim = sizes.head_dim;
    return op;
}

StoreKeyValue store(Buffers& buffers, const Sizes& sizes, const std::vector<int>& place) {
    auto op = on_cache<StoreKeyValue>(buffers, sizes, 133);
    op.place = buffers.indices(place);
    return op;
}

DecodeAttention attend(Buffers& buffers, const Sizes& sizes, const std::vector<int>& lengths, std::int64_t window) {
    const auto rows = static_cast<std::int64_t>(lengths.size());
    auto op = on_cache<DecodeAttention>(buffers, sizes, rows);
    op.rows_each = rows / sizes.sequences;
    op.window = window;
    op.lengths = buffers.indices(lengths);
    op.o = buffers.matrix(DType::bf16, rows, sizes.heads * sizes.head_dim);
    op.scratch = buffers.vector(DType::u8, op.scratch_bytes());
    return op;
}

}  // namespace

TEST_CASE("StoreKeyValue on the GPU", "[gpu]") {
    if (!has_hopper()) return;
    for (const Sizes& sizes : {Sizes{3, 300, 4, 2, 64}, Sizes{2, 133, 8, 1, 128, 8}})
        for (const std::vector<int>& place : {std::vector<int>{1, 0, 133}, {0, 7, 100}, {1, 132, 1}, {0, 5, 0}}) {
            Buffers expected, got;
            const StoreKeyValue op = store(expected, sizes, place);
            cpu::run(op, expected.memory());
            run_on_gpu(store(got, sizes, place), got);
            INFO("context " << sizes.context << ", place " << place[0] << " " << place[1] << " " << place[2]);
            for (const View& view : {View(op.qkv), View(op.keys), View(op.values)})
                CHECK((got.bits(view) == expected.bits(view)));
        }
}

TEST_CASE("DecodeAttention on the GPU", "[gpu]") {
    if (!has_hopper()) return;
    for (const Sizes& sizes : {Sizes{4, 1000, 8, 2, 64}, Sizes{4, 513, 4, 4, 128, 8}, Sizes{4, 600, 32, 2, 64}})
        for (const auto& [lengths, window] : {std::pair{std::vector<int>{1, 256, 257, 0}, 0},
                                              {{513, 512, 255, 2}, 0},
                                              {{0, 0, 0, 0}, 0},
                                              {{300, 300, 300, 300}, 0},
                                              {{1, 256, 257, 0}, 1},
                                              {{513, 512, 255, 2}, 256},
                                              {{513, 300, 257, 2}, 257},
                                              {{513, 500, 400, 0}, 100}}) {
            Buffers expected, got, again;
            const DecodeAttention op = attend(expected, sizes, lengths, window);
            cpu::run(op, expected.memory());
            run_on_gpu(attend(got, sizes, lengths, window), got);
            run_on_gpu(attend(again, sizes, lengths, window), again);
            INFO("context " << sizes.context << ", heads " << sizes.heads << "/" << sizes.kv_heads << " of "
                            << sizes.head_dim << ", lengths " << lengths[0] << " " << lengths[1] << ", window "
                            << window);
            for (const View& view : {View(op.qkv), View(op.keys), View(op.values)})
                CHECK((got.bits(view) == expected.bits(view)));
            CHECK((got.bits(op.o) == again.bits(op.o)));
            for (std::int64_t s = 0; s < op.o.rows; ++s)
                for (std::int64_t j = 0; j < op.o.cols; ++j) {
                    const double want = expected.get(op.o, s, j);
                    REQUIRE(std::abs(got.get(op.o, s, j) - want) <= 0x1p-7 * std::abs(want) + 1e-5);
                }
        }
}

TEST_CASE("a sequence has the same bits in DecodeAttention on the GPU by itself and with others", "[gpu]") {
    if (!has_hopper()) return;
    constexpr Sizes sizes{4, 700, 8, 2, 64};
    Buffers first, second;
    const DecodeAttention op = attend(first, sizes, {600, 1, 300, 700}, 0);
    run_on_gpu(op, first);
    run_on_gpu(attend(second, sizes, {600, 0, 0, 0}, 0), second);
    for (std::int64_t j = 0; j < op.o.cols; ++j) CHECK(first.get(op.o, 0, j) == second.get(op.o, 0, j));
}

TEST_CASE("rows of one sequence in DecodeAttention on the GPU have the bits of calls for one row after the other",
          "[gpu]") {
    if (!has_hopper()) return;
    constexpr Sizes sizes{2, 700, 8, 2, 64};
    // Rows in one part of 256 positions, across two, and idle ones.
    const std::vector<int> lengths{255, 256, 257, 258, 9, 10, 0, 0};
    for (const std::int64_t window : {0, 2, 256}) {
        Buffers together, apart;
        const DecodeAttention all = attend(together, sizes, lengths, window);
        const DecodeAttention one = attend(apart, sizes, {0, 0}, window);
        const auto copy = [&](const View& from, std::int64_t row, const View& to, std::int64_t to_row) {
            for (std::int64_t j = 0; j < to.cols; ++j) apart.set(to, to_row, j, together.get(from, row, j));
        };
        for (std::int64_t row = 0; row < one.keys.rows; ++row) {
            copy(all.keys, row, one.keys, row);
            copy(all.values, row, one.values, row);
        }
        run_on_gpu(all, together);
        for (std::size_t m = 0; m < lengths.size(); ++m) {
            const auto row = static_cast<std::int64_t>(m), sequence = row / 4;
            apart.set(one.lengths, 0, sequence, lengths[m]);
            apart.set(one.lengths, 0, 1 - sequence, 0);
            copy(all.qkv, row, one.qkv, sequence);
            run_on_gpu(one, apart);
            for (std::int64_t j = 0; j < one.o.cols; ++j)
                REQUIRE(apart.get(one.o, sequence, j) == together.get(all.o, row, j));
        }
        CHECK((apart.bits(one.keys) == together.bits(all.keys)));
        CHECK((apart.bits(one.values) == together.bits(all.values)));
    }
}
