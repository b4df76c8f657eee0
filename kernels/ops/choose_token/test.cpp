// ChooseToken: what becomes of a row, and what a row does not depend on.
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "kernels/core/integers.h"
#include "kernels/cpu/run.h"
#include "kernels/ops/choose_token/choose.h"
#include "kernels/ops/choose_token/op.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr int code(RowState state) { return static_cast<int>(state); }

/// An op whose rows run, with room for `limit` tokens, of 3 so far.
struct Rows {
    Buffers buffers{};
    ChooseToken op{};

    Rows(std::int64_t sequences, std::int64_t vocab, DType dtype = DType::f32, int limit = 100) {
        op.logits = buffers.matrix(dtype, sequences, vocab, vocab + 5);
        op.options = buffers.vector(DType::i32, ChooseToken::kOptionWords * sequences);
        op.end_tokens = buffers.matrix(DType::i32, sequences, 2, 3);
        op.limits = row(limit);
        op.seen = buffers.matrix(DType::i32, sequences, ceil_div(vocab, std::int64_t{32}),
                                 ceil_div(vocab, std::int64_t{32}) + 2);
        op.lengths = row(3);
        op.positions = row(2);
        op.state = row(code(RowState::running));
        op.token = row(-7);
        op.status = row(-1);
        for (std::int64_t s = 0; s < sequences; ++s) {
            for (std::int64_t e = 0; e < 2; ++e) buffers.set(op.end_tokens, s, e, -1);
            for (std::int64_t word = 0; word < op.seen.cols; ++word) buffers.set(op.seen, s, word, 0);
            set_options(s, {});
        }
    }
    View row(int value) {
        const View view = buffers.vector(DType::i32, op.logits.rows);
        for (std::int64_t s = 0; s < view.cols; ++s) buffers.set(view, 0, s, value);
        return view;
    }
    void set_options(std::int64_t s, const ChoiceOptions& options) {
        const auto words = std::bit_cast<std::array<std::int32_t, ChooseToken::kOptionWords>>(options);
        for (std::size_t i = 0; i < words.size(); ++i)
            buffers.set(op.options, 0, ChooseToken::kOptionWords * s + static_cast<std::int64_t>(i), words[i]);
    }
    void set_logits(std::int64_t s, const std::vector<double>& logits) {
        for (std::size_t i = 0; i < logits.size(); ++i)
            buffers.set(op.logits, s, static_cast<std::int64_t>(i), logits[i]);
    }
    void mark_seen(std::int64_t s, int token) {
        const auto word = static_cast<std::int32_t>(get(op.seen, s, token / 32));
        buffers.set(op.seen, s, token / 32, word | static_cast<std::int32_t>(1u << (token % 32)));
    }
    int get(const View& view, std::int64_t row_index, std::int64_t column) const {
        return static_cast<int>(buffers.get(view, row_index, column));
    }
    int of(const View& view, std::int64_t s) const { return get(view, 0, s); }
    void run() { cpu::run(op, buffers.memory()); }
};

std::vector<double> random_logits(std::int64_t vocab, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(0, 2);
    std::vector<double> logits(static_cast<std::size_t>(vocab));
    for (double& logit : logits) logit = normal(random);
    return logits;
}

}  // namespace

TEST_CASE("ChooseToken gives a row its token, counts it and marks it as seen") {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
        Rows rows(1, 70, dtype);
        rows.set_logits(0, random_logits(70, 5));
        rows.set_options(0, {.temperature = 0.8f, .top_k = 20, .seed = 9});
        std::vector<float> logits;
        for (std::int64_t i = 0; i < 70; ++i)
            logits.push_back(static_cast<float>(rows.buffers.get(rows.op.logits, 0, i)));
        const ChoiceOptions options{.temperature = 0.8f, .top_k = 20, .seed = 9};
        for (int step = 0; step < 40; ++step) {
            const int length = rows.of(rows.op.lengths, 0);
            REQUIRE(length == 3 + step);
            const int token = sampling::choose(logits, sampling::rules_of(options), sampling::draw_of(9, length));
            rows.run();
            REQUIRE(rows.of(rows.op.token, 0) == token);
            CHECK(rows.of(rows.op.positions, 0) == length);
            CHECK((static_cast<unsigned>(rows.get(rows.op.seen, 0, token / 32)) >> (token % 32) & 1) == 1);
        }
        CHECK(rows.of(rows.op.lengths, 0) == 43);
        CHECK(rows.of(rows.op.state, 0) == code(RowState::running));
        CHECK(rows.of(rows.op.status, 0) == -1);
        CHECK(rows.buffers.gaps_untouched(rows.op.seen));
    }
}

TEST_CASE("ChooseToken: seen tokens have the penalty, and the token that was chosen is seen from then on") {
    Rows rows(1, 40);
    std::vector<double> logits(40, -5);
    logits[33] = 2;
    logits[7] = 1.5;
    logits[39] = 1.25;
    rows.set_logits(0, logits);
    rows.set_options(0, {.temperature = 0, .repetition_penalty = 2});
    const auto next = [&] {
        rows.run();
        return rows.of(rows.op.token, 0);
    };
    CHECK(next() == 33);
    CHECK(next() == 7);   // 33 has 1 now
    CHECK(next() == 39);  // 7 has 0.75
    CHECK(next() == 33);
    rows.mark_seen(0, 33);
    CHECK(next() == 33);  // once seen, seen: the penalty does not grow

    // Without a list of seen tokens there is no penalty.
    rows.op.seen = {};
    rows.op.positions = {};
    rows.set_options(0, {.temperature = 0, .repetition_penalty = 1000});
    for (int i = 0; i < 3; ++i) CHECK(next() == 33);
}

TEST_CASE("ChooseToken ends a row by its end tokens and by its length") {
    Rows rows(4, 40, DType::f32, 5);
    for (std::int64_t s = 0; s < 4; ++s) {
        std::vector<double> logits(40, 0);
        logits[static_cast<std::size_t>(10 + s)] = 9;
        rows.set_logits(s, logits);
        rows.set_options(s, {.temperature = 0});
    }
    rows.buffers.set(rows.op.end_tokens, 1, 1, 11);  // row 1's own
    rows.buffers.set(rows.op.end_tokens, 2, 0, 11);  // of another row's token
    rows.buffers.set(rows.op.limits, 0, 3, 4);
    rows.run();
    const auto states = [&] {
        std::vector<int> all;
        for (std::int64_t s = 0; s < 4; ++s) all.push_back(rows.of(rows.op.state, s));
        return all;
    };
    const int running = code(RowState::running), ended = code(RowState::ended), length = code(RowState::length);
    CHECK(states() == std::vector<int>{running, ended, running, length});
    CHECK(rows.of(rows.op.token, 1) == 11);
    CHECK(rows.of(rows.op.lengths, 1) == 4);
    // An end token at the last place ends the row as such.
    rows.buffers.set(rows.op.end_tokens, 0, 0, 10);
    rows.run();
    CHECK(states() == std::vector<int>{ended, ended, length, length});
    CHECK(rows.of(rows.op.lengths, 1) == 4);  // it did not run
}

TEST_CASE("ChooseToken does not touch a row that does not run, whatever its logits") {
    for (const RowState state : {RowState::idle, RowState::ended, RowState::length, RowState::failed}) {
        Rows rows(2, 33);
        rows.set_logits(0, random_logits(33, 1));  // row 1 keeps its poison
        rows.buffers.set(rows.op.state, 0, 1, code(state));
        const auto views = {View(rows.op.lengths), View(rows.op.positions), View(rows.op.token), View(rows.op.status),
                            View(rows.op.state)};
        rows.run();
        CHECK(rows.of(rows.op.lengths, 0) == 4);
        const std::vector<int> expected = {3, 2, -7, -1, code(state)};
        std::size_t i = 0;
        for (const View& view : views) CHECK(rows.of(view, 1) == expected[i++]);
        for (std::int64_t word = 0; word < 2; ++word) CHECK(rows.get(rows.op.seen, 1, word) == 0);
    }
}

TEST_CASE("ChooseToken reports the first logit that is not finite and fails only that row") {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (const double bad : {std::nan(""), kInfinity, -kInfinity}) {
        for (const float temperature : {0.0f, 1.0f}) {
            Rows rows(2, 50);
            rows.set_logits(0, random_logits(50, 1));
            rows.set_logits(1, random_logits(50, 2));
            rows.set_options(1, {.temperature = temperature});
            rows.buffers.set(rows.op.logits, 1, 49, bad);
            rows.buffers.set(rows.op.logits, 1, 34, bad);
            rows.run();
            CHECK(rows.of(rows.op.state, 0) == code(RowState::running));
            CHECK(rows.of(rows.op.status, 0) == -1);
            CHECK(rows.of(rows.op.state, 1) == code(RowState::failed));
            CHECK(rows.of(rows.op.status, 1) == 34);
            CHECK(rows.of(rows.op.token, 1) == -7);
            CHECK(rows.of(rows.op.lengths, 1) == 3);
        }
    }
}

TEST_CASE("ChooseToken: a row has the same tokens by itself and in any row of a batch") {
    const ChoiceOptions options{
        .temperature = 0.9f, .top_k = 60, .top_p = 0.95f, .min_p = 0.01f, .repetition_penalty = 1.2f, .seed = 77};
    const auto tokens = [&](std::int64_t sequences, std::int64_t at) {
        Rows rows(sequences, 131);
        for (std::int64_t s = 0; s < sequences; ++s) {
            rows.set_logits(s, random_logits(131, 100 + static_cast<std::uint64_t>(s)));
            rows.set_options(s, {.seed = static_cast<std::uint64_t>(s)});
        }
        rows.set_logits(at, random_logits(131, 4));
        rows.set_options(at, options);
        std::vector<int> found;
        for (int step = 0; step < 30; ++step) {
            rows.run();
            found.push_back(rows.of(rows.op.token, at));
        }
        return found;
    };
    const std::vector<int> alone = tokens(1, 0);
    CHECK(std::set<int>(alone.begin(), alone.end()).size() > 5);
    for (std::int64_t at = 0; at < 8; ++at) CHECK(tokens(8, at) == alone);
}

TEST_CASE("ChooseToken names operands that do not fit") {
    Rows rows(2, 40);
    ChooseToken op = rows.op;
    op.seen.cols = 1;
    CHECK_THROWS_WITH(cpu::run(op, rows.buffers.memory()), Catch::Contains("ChooseToken: operand seen is (2, 1)"));
    op = rows.op;
    op.options.cols = 8;
    CHECK_THROWS_WITH(cpu::run(op, rows.buffers.memory()), Catch::Contains("options"));
    op = rows.op;
    op.logits.cols = 0;
    CHECK_THROWS_WITH(cpu::run(op, rows.buffers.memory()), Catch::Contains("logits of 0 tokens"));
}
