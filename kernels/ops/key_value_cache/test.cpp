// StoreKeyValue and DecodeAttention against their formulas in plain fp64 loops.
#include <cmath>

#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

struct Sizes {
    std::int64_t sequences, context, heads, kv_heads, head_dim;
    std::int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }
    std::int64_t cache_rows() const { return sequences * kv_heads * context; }
    std::int64_t cache_row(std::int64_t s, std::int64_t head, std::int64_t p) const {
        return (s * kv_heads + head) * context + p;
    }
};
constexpr Sizes kSizes{.sequences = 4, .context = 130, .heads = 6, .kv_heads = 2, .head_dim = 10};

template <class Op>
Op on_cache(Buffers& buffers, DType storage, const Sizes& sizes, std::int64_t rows) {
    Op op;
    op.qkv = buffers.random(storage, rows, sizes.columns(), -2, 2, sizes.columns() + 6);
    op.keys = buffers.random(storage, sizes.cache_rows(), sizes.head_dim, -1, 1, sizes.head_dim + 2);
    op.values = buffers.random(storage, sizes.cache_rows(), sizes.head_dim, -1, 1, sizes.head_dim + 2);
    op.context = sizes.context;
    op.heads = sizes.heads;
    op.kv_heads = sizes.kv_heads;
    op.head_dim = sizes.head_dim;
    return op;
}

StoreKeyValue store(Buffers& buffers, DType storage, const std::vector<int>& place) {
    auto op = on_cache<StoreKeyValue>(buffers, storage, kSizes, 9);
    op.place = buffers.indices(place);
    return op;
}

DecodeAttention attend(Buffers& buffers, DType storage, const std::vector<int>& lengths, const Sizes& sizes = kSizes) {
    const auto rows = static_cast<std::int64_t>(lengths.size());
    auto op = on_cache<DecodeAttention>(buffers, storage, sizes, rows);
    op.rows_each = rows / sizes.sequences;
    op.lengths = buffers.indices(lengths);
    op.o = buffers.matrix(storage, rows, sizes.heads * sizes.head_dim, sizes.heads * sizes.head_dim + 3);
    return op;
}

/// A cache as it should be: as before, but rows of qkv where `stored` says so (-1: none).
template <class Stored>
void require_cache(const Buffers& buffers, const View& cache, const std::vector<double>& before, const View& qkv,
                   std::int64_t first_column, const Stored& stored) {
    const std::int64_t head_dim = kSizes.head_dim;
    for (std::int64_t row = 0; row < cache.rows; ++row) {
        const std::int64_t p = row % kSizes.context, head = row / kSizes.context % kSizes.kv_heads;
        const std::int64_t from = stored(row / (kSizes.context * kSizes.kv_heads), p);
        for (std::int64_t j = 0; j < head_dim; ++j) {
            const double expected = from < 0 ? before[static_cast<std::size_t>(row * head_dim + j)]
                                             : buffers.get(qkv, from, first_column + head * head_dim + j);
            REQUIRE(buffers.get(cache, row, j) == expected);
        }
    }
    REQUIRE(buffers.gaps_untouched(cache));
}

template <class Op, class Stored>
void run_and_require_caches(const Op& op, Buffers& buffers, const Stored& stored) {
    const auto keys = buffers.values(op.keys), values = buffers.values(op.values);
    cpu::run(op, buffers.memory());
    require_cache(buffers, op.keys, keys, op.qkv, op.heads * op.head_dim, stored);
    require_cache(buffers, op.values, values, op.qkv, (op.heads + op.kv_heads) * op.head_dim, stored);
}

/// Query head h of sequence s over `length` positions of the cache, or the last `op.window` of them, after the op.
std::vector<double> naive_attention(const Buffers& buffers, const DecodeAttention& op, const Sizes& sizes,
                                    std::int64_t s, std::int64_t h, std::int64_t length) {
    const std::int64_t first = sizes.cache_row(s, h / (sizes.heads / sizes.kv_heads), 0), head_dim = sizes.head_dim;
    const std::int64_t begin = op.window > 0 && op.window < length ? length - op.window : 0;
    std::vector<double> o(static_cast<std::size_t>(head_dim), 0.0), weight;
    double largest = -1e300, sum = 0;
    for (std::int64_t p = begin; p < length; ++p) {
        double dot = 0;
        for (std::int64_t j = 0; j < head_dim; ++j)
            dot += buffers.get(op.qkv, s, h * head_dim + j) * buffers.get(op.keys, first + p, j);
        weight.push_back(dot / std::sqrt(static_cast<double>(head_dim)));
        largest = std::max(largest, weight.back());
    }
    for (double& w : weight) sum += w = std::exp(w - largest);
    for (std::int64_t p = begin; p < length; ++p)
        for (std::int64_t j = 0; j < head_dim; ++j)
            o[static_cast<std::size_t>(j)] +=
                weight[static_cast<std::size_t>(p - begin)] / sum * buffers.get(op.values, first + p, j);
    return o;
}

}  // namespace

TEST_CASE("StoreKeyValue copies the rows that count to their positions and nothing else") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        struct Place {
            int sequence, first, count;
        };
        for (const auto& [sequence, first, count] :
             {Place{0, 0, 9}, Place{2, 5, 4}, Place{3, 121, 9}, Place{1, 130, 0}, Place{1, 129, 1}}) {
            Buffers buffers;
            const StoreKeyValue op = store(buffers, storage, {sequence, first, count});
            run_and_require_caches(op, buffers, [&](std::int64_t s, std::int64_t p) {
                return s == sequence && p >= first && p < first + count ? p - first : std::int64_t{-1};
            });
        }
    }
}

// Logits are sums of 10 products below 2, divided by sqrt(10): below 6.4, each rounded 11 times. exp makes of a logit's
// error the same relative error of its weight, and Σ e, Σ e v and their quotient round at most 130 times more, of terms
// that are at most 2 and may cancel: 400 eps of the compute type, and one rounding to storage, half of an eps of at
// most 2.
TEST_CASE("DecodeAttention stores the newest key and value and attends only to its sequence") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        for (const auto& [lengths, window] :
             {std::pair{std::vector<int>{1, 130, 0, 77}, 0}, std::pair{std::vector<int>{0, 0, 0, 0}, 0},
              std::pair{std::vector<int>{1, 130, 0, 77}, 76}, std::pair{std::vector<int>{2, 130, 0, 77}, 1},
              std::pair{std::vector<int>{1, 130, 0, 77}, 130}}) {
            Buffers buffers;
            DecodeAttention op = attend(buffers, storage, lengths);
            op.window = window;
            const std::vector<int>& stored_at = lengths;
            run_and_require_caches(op, buffers, [&](std::int64_t s, std::int64_t p) {
                return p == stored_at[static_cast<std::size_t>(s)] - 1 ? s : std::int64_t{-1};
            });
            const double stored = storage == DType::bf16 ? epsilon(storage) : 0;
            const double tolerance = 400 * epsilon(compute_of(storage)) + stored;
            for (std::int64_t s = 0; s < kSizes.sequences; ++s)
                for (std::int64_t h = 0; h < kSizes.heads; ++h) {
                    const auto expected =
                        naive_attention(buffers, op, kSizes, s, h, lengths[static_cast<std::size_t>(s)]);
                    for (std::int64_t j = 0; j < kSizes.head_dim; ++j)
                        REQUIRE(std::abs(buffers.get(op.o, s, h * kSizes.head_dim + j) -
                                         expected[static_cast<std::size_t>(j)]) <= tolerance);
                }
            REQUIRE(buffers.gaps_untouched(op.o));
        }
}

TEST_CASE("logits of any size do not overflow DecodeAttention's softmax") {
    constexpr Sizes sizes{.sequences = 1, .context = 3, .heads = 1, .kv_heads = 1, .head_dim = 4};
    Buffers buffers;
    DecodeAttention op = attend(buffers, DType::f32, {3}, sizes);
    for (std::int64_t j = 0; j < 4; ++j) {
        buffers.set(op.qkv, 0, j, 1e4);
        buffers.set(op.keys, 0, j, 1e4);
        buffers.set(op.keys, 1, j, 2e4);
        buffers.set(op.qkv, 0, 4 + j, -1e4);
    }
    cpu::run(op, buffers.memory());
    for (std::int64_t j = 0; j < 4; ++j) REQUIRE(buffers.get(op.o, 0, j) == buffers.get(op.values, 1, j));
}

TEST_CASE("a sequence has the same bits in DecodeAttention by itself and with others, in any row") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        constexpr Sizes alone{.sequences = 1, .context = 130, .heads = 6, .kv_heads = 2, .head_dim = 10};
        Buffers one, four;
        const DecodeAttention single = attend(one, storage, {99}, alone);
        const DecodeAttention batch = attend(four, storage, {130, 5, 99, 0});
        const auto copy = [&](const View& from, std::int64_t row, const View& to, std::int64_t to_row) {
            for (std::int64_t j = 0; j < to.cols; ++j) four.set(to, to_row, j, one.get(from, row, j));
        };
        copy(single.qkv, 0, batch.qkv, 2);
        for (std::int64_t row = 0; row < alone.cache_rows(); ++row) {
            copy(single.keys, row, batch.keys, kSizes.cache_row(2, 0, 0) + row);
            copy(single.values, row, batch.values, kSizes.cache_row(2, 0, 0) + row);
        }
        cpu::run(single, one.memory());
        cpu::run(batch, four.memory());
        for (std::int64_t j = 0; j < single.o.cols; ++j) REQUIRE(one.get(single.o, 0, j) == four.get(batch.o, 2, j));
    }
}

TEST_CASE("rows of one sequence in DecodeAttention have the bits of calls for one row after the other") {
    const std::vector<int> lengths{76, 77, 78, 0, 0, 0, 1, 2, 0, 130, 0, 0};
    for (const DType storage : {DType::f64, DType::f32, DType::bf16})
        for (const std::int64_t window : {0, 3, 77}) {
            Buffers together, apart;
            DecodeAttention all = attend(together, storage, lengths);
            all.window = window;
            cpu::run(all, together.memory());
            DecodeAttention one = attend(apart, storage, {0, 0, 0, 0});
            one.window = window;
            // As `all` found them: what it wrote is overwritten, a row after the other.
            const auto copy = [](const Buffers& from, const View& source, std::int64_t row, Buffers& into,
                                 const View& target, std::int64_t to) {
                for (std::int64_t j = 0; j < target.cols; ++j) into.set(target, to, j, from.get(source, row, j));
            };
            for (std::int64_t row = 0; row < one.keys.rows; ++row) {
                copy(together, all.keys, row, apart, one.keys, row);
                copy(together, all.values, row, apart, one.values, row);
            }
            for (std::size_t m = 0; m < lengths.size(); ++m)
                for (const View* cache : {&one.keys, &one.values})
                    for (std::int64_t head = 0; head < kSizes.kv_heads && lengths[m] > 0; ++head)
                        for (std::int64_t j = 0; j < kSizes.head_dim; ++j)
                            apart.set(*cache, kSizes.cache_row(static_cast<std::int64_t>(m / 3), head, lengths[m] - 1),
                                      j, NAN);
            for (std::size_t m = 0; m < lengths.size(); ++m) {
                const auto row = static_cast<std::int64_t>(m), sequence = row / 3;
                for (std::int64_t s = 0; s < kSizes.sequences; ++s)
                    apart.set(one.lengths, 0, s, s == sequence ? lengths[m] : 0);
                copy(together, all.qkv, row, apart, one.qkv, sequence);
                cpu::run(one, apart.memory());
                for (std::int64_t j = 0; j < one.o.cols; ++j)
                    REQUIRE(apart.get(one.o, sequence, j) == together.get(all.o, row, j));
            }
            REQUIRE(apart.values(one.keys) == together.values(all.keys));
            REQUIRE(apart.values(one.values) == together.values(all.values));
        }
}

TEST_CASE("rows of one sequence that do not follow one another are an error") {
    const auto run = [](const std::vector<int>& lengths) {
        Buffers buffers;
        const DecodeAttention op = attend(buffers, DType::f32, lengths);
        cpu::run(op, buffers.memory());
    };
    REQUIRE_NOTHROW(run({5, 6, 9, 0, 0, 0, 130, 0}));
    REQUIRE_THROWS_WITH(
        run({5, 6, 1, 3, 0, 0, 0, 0}),
        "DecodeAttention: lengths[2] and lengths[3], of one sequence, are 1 and 3; each row must be one "
        "token longer than the one before, idle ones last");
    REQUIRE_THROWS(run({5, 5, 0, 0, 0, 0, 0, 0}));
    REQUIRE_THROWS(run({0, 1, 0, 0, 0, 0, 0, 0}));
}

TEST_CASE("ops on a cache give the same bits for any number of threads") {
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        require_same_bits_for_any_thread_count([&](Buffers& b) { return store(b, storage, {1, 3, 8}); });
        require_same_bits_for_any_thread_count([&](Buffers& b) { return attend(b, storage, {130, 0, 1, 64}); });
    }
}

TEST_CASE("a place or a length outside the cache is an error") {
    const auto stored = [](const std::vector<int>& place) {
        Buffers buffers;
        const StoreKeyValue op = store(buffers, DType::f32, place);
        cpu::run(op, buffers.memory());
    };
    REQUIRE_THROWS_WITH(stored({4, 0, 1}), "StoreKeyValue: place names sequence 4, and the cache has 4");
    REQUIRE_THROWS_WITH(stored({0, 0, 10}), "StoreKeyValue: place stores 10 rows, and qkv has 9");
    REQUIRE_THROWS_WITH(stored({0, 125, 6}),
                        "StoreKeyValue: place stores positions 125 to 131, and the context has 130");
    Buffers buffers;
    DecodeAttention op = attend(buffers, DType::f32, {1, 131, 0, 0});
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()), "DecodeAttention: lengths[1] is 131, outside [0, 131)");
    op.lengths = buffers.indices({1, 1, 1, 1});
    op.context = 129;
    REQUIRE_THROWS_WITH(cpu::run(op, buffers.memory()),
                        "DecodeAttention: keys has 1040 rows, not a multiple of the 2 x 129 of a sequence");
}
