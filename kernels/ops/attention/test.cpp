// Attention and AttentionBackward against the definition of attention in fp64 and its complex-step derivative.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/cpu/run.h"
#include "kernels/ops/attention/naive_attention.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"
#include "tests/kernels/threads.h"

using namespace coda;
using namespace coda::test;

namespace {

/// Start position of every row's document, where documents have `length` tokens, the last of a sequence fewer.
std::vector<int> documents(const AttentionCase& c, int length) {
    std::vector<int> start;
    for (std::int64_t m = 0; m < c.rows(); ++m) {
        const int position = static_cast<int>(m % c.seq_len);
        start.push_back(position - position % length);
    }
    return start;
}

/// The first key of every row in a window of `window` keys, its own included, and in its document.
std::vector<int> windows(const AttentionCase& c, int window, std::vector<int> starts) {
    for (std::int64_t m = 0; m < c.rows(); ++m) {
        int& start = starts[static_cast<std::size_t>(m)];
        start = std::max(start, static_cast<int>(m % c.seq_len) - window + 1);
    }
    return starts;
}

/// Operands of both ops for one case. Rows of qkv, o and dqkv lie further apart than they are wide.
struct Problem {
    AttentionCase c;
    std::vector<int> starts;
    Buffers buffers;
    View qkv, dout, o, lse, dqkv, doc_start;

    Problem(const AttentionCase& shape, DType storage, std::vector<int> document_start = {}, double size = 1)
        : c(shape), starts(std::move(document_start)) {
        const DType statistic = compute_of(storage);
        const std::int64_t width = c.heads * c.head_dim;
        qkv = buffers.random(storage, c.rows(), c.columns(), -size, size, c.columns() + 3);
        dout = buffers.random(storage, c.rows(), width);
        o = buffers.matrix(storage, c.rows(), width, width + 5);
        lse = buffers.matrix(statistic, c.heads, c.rows());
        dqkv = buffers.matrix(storage, c.rows(), c.columns(), c.columns() + 1);
        if (!starts.empty()) doc_start = buffers.indices(starts);
    }

    Attention forward() const {
        Attention op;
        op.qkv = qkv;
        op.doc_start = doc_start;
        op.o = o;
        op.lse = lse;
        set_shape(op);
        return op;
    }
    AttentionBackward backward() const {
        AttentionBackward op;
        op.qkv = qkv;
        op.o = o;
        op.dout = dout;
        op.lse = lse;
        op.doc_start = doc_start;
        op.dqkv = dqkv;
        set_shape(op);
        return op;
    }
    template <class Op>
    void set_shape(Op& op) const {
        op.seq_len = c.seq_len;
        op.heads = c.heads;
        op.kv_heads = c.kv_heads;
        op.head_dim = c.head_dim;
    }
    void run(const Op& op) const { cpu::run(op, buffers.memory()); }
};

/// max |a - b| / max |b|; infinite where a has a NaN.
double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        if (std::isnan(a[i])) return std::numeric_limits<double>::infinity();
        difference = std::max(difference, std::abs(a[i] - b[i]));
        largest = std::max(largest, std::abs(b[i]));
    }
    return difference / largest;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

std::vector<AttentionCase> cases() {
    std::vector<AttentionCase> list;
    for (const auto& [heads, kv_heads] : {std::pair{2, 2}, std::pair{4, 1}, std::pair{8, 1}, std::pair{4, 2}})
        for (const int head_dim : {8, 16, 64})
            for (const int seq_len : {1, 17, 64, 129}) {
                if (head_dim == 64 && seq_len == 129 && heads == 8) continue;  // the slowest naive case adds nothing
                list.push_back({2, seq_len, heads, kv_heads, head_dim});
            }
    return list;
}

std::string describe(const AttentionCase& c) {
    return text("T ", c.seq_len, ", heads ", c.heads, "/", c.kv_heads, ", hd ", c.head_dim);
}

}  // namespace

// Rounding errors of a sum of at most 129 terms below 1 are about 1e-15; 1e-13 leaves room for the softmax.
TEST_CASE("attention in double is the definition") {
    for (const AttentionCase& c : cases())
        for (const int document : {0, 1, 23, 70}) {
            INFO(describe(c) << ", documents of " << document);
            Problem problem(c, DType::f64, document ? documents(c, document) : std::vector<int>{});
            const auto expected = naive_attention(c, problem.buffers.values(problem.qkv), problem.starts);
            problem.run(problem.forward());
            REQUIRE(relative_difference(problem.buffers.values(problem.o), expected.o) < 1e-13);
            REQUIRE(relative_difference(problem.buffers.values(problem.lse), expected.lse) < 1e-13);
            REQUIRE(problem.buffers.gaps_untouched(problem.o));
        }
}

// Inputs are exact in the storage type, so only the arithmetic and one rounding of the output differ. Float: sums over
// hd <= 64 and T <= 129 terms have errors below 129 eps. bf16: half an eps of the output more.
TEST_CASE("attention and its gradient in a window are the definition") {
    for (const AttentionCase& c : {AttentionCase{2, 129, 4, 2, 8}, AttentionCase{1, 200, 2, 1, 16}})
        for (const int window : {1, 2, 63, 64, 65, 127, 128, 129})
            for (const int document : {200, 50}) {
                INFO(describe(c) << ", window " << window << ", documents of " << document);
                Problem problem(c, DType::f64, windows(c, window, documents(c, document)));
                problem.run(problem.forward());
                problem.run(problem.backward());
                const auto qkv = problem.buffers.values(problem.qkv);
                const auto expected = naive_attention(c, qkv, problem.starts);
                REQUIRE(relative_difference(problem.buffers.values(problem.o), expected.o) < 1e-13);
                const auto gradient = problem.buffers.values(problem.dqkv);
                const auto direction =
                    problem.buffers.values(problem.buffers.random(DType::f64, 1, c.rows() * c.columns()));
                const double derivative =
                    directional_derivative(c, qkv, direction, problem.buffers.values(problem.dout), problem.starts);
                const double scale = std::sqrt(dot(gradient, gradient) * dot(direction, direction));
                REQUIRE(std::abs(dot(gradient, direction) - derivative) < 1e-13 * scale);
            }
}

TEST_CASE("attention in float and bf16 agrees with double to rounding") {
    for (const DType storage : {DType::f32, DType::bf16})
        for (const AttentionCase& c : cases()) {
            INFO(name_of(storage) << ", " << describe(c));
            Problem problem(c, storage, documents(c, 40));
            const auto expected = naive_attention(c, problem.buffers.values(problem.qkv), problem.starts);
            problem.run(problem.forward());
            const double arithmetic = 129 * epsilon(DType::f32);
            const double rounding = storage == DType::bf16 ? epsilon(storage) / 2 : 0;
            REQUIRE(relative_difference(problem.buffers.values(problem.o), expected.o) < arithmetic + rounding);
            REQUIRE(relative_difference(problem.buffers.values(problem.lse), expected.lse) < arithmetic);
        }
}

// |logit| reaches 8 * 40 * 40 / sqrt(8) = 4500: exp overflows in both types unless the maximum is subtracted. A logit's
// rounding error, 4500 * 8 eps, is a relative error of its probability.
TEST_CASE("attention survives large logits") {
    const AttentionCase c{2, 129, 4, 2, 8};
    for (const DType storage : {DType::f64, DType::f32}) {
        Problem problem(c, storage, {}, 40);
        const auto expected = naive_attention(c, problem.buffers.values(problem.qkv), {});
        problem.run(problem.forward());
        const double tolerance = 4500 * 8 * epsilon(storage);
        REQUIRE(relative_difference(problem.buffers.values(problem.o), expected.o) < tolerance);
        REQUIRE(relative_difference(problem.buffers.values(problem.lse), expected.lse) < tolerance);
        problem.run(problem.backward());
        for (const double value : problem.buffers.values(problem.dqkv)) REQUIRE(std::isfinite(value));
    }
}

TEST_CASE("every element of attention's gradient is the complex-step derivative") {
    const AttentionCase c{1, 17, 4, 2, 8};
    for (const int document : {0, 7}) {
        Problem problem(c, DType::f64, document ? documents(c, document) : std::vector<int>{});
        problem.run(problem.forward());
        problem.run(problem.backward());
        const auto qkv = problem.buffers.values(problem.qkv);
        const auto dout = problem.buffers.values(problem.dout);
        std::vector<double> expected, direction(qkv.size());
        for (std::size_t i = 0; i < qkv.size(); ++i) {
            direction[i] = 1;
            expected.push_back(directional_derivative(c, qkv, direction, dout, problem.starts));
            direction[i] = 0;
        }
        REQUIRE(relative_difference(problem.buffers.values(problem.dqkv), expected) < 1e-13);
    }
}

// A random direction weights every element, so that one wrong element shows. The derivative along it has the scale
// |gradient| |direction|.
TEST_CASE("attention's gradient agrees with derivatives in random directions") {
    for (const AttentionCase& c : cases())
        for (const int document : {0, 23}) {
            INFO(describe(c) << ", documents of " << document);
            Problem problem(c, DType::f64, document ? documents(c, document) : std::vector<int>{});
            problem.run(problem.forward());
            problem.run(problem.backward());
            const auto gradient = problem.buffers.values(problem.dqkv);
            const auto direction =
                problem.buffers.values(problem.buffers.random(DType::f64, 1, c.rows() * c.columns()));
            const double expected = directional_derivative(c, problem.buffers.values(problem.qkv), direction,
                                                           problem.buffers.values(problem.dout), problem.starts);
            const double scale = std::sqrt(dot(gradient, gradient) * dot(direction, direction));
            REQUIRE(std::abs(dot(gradient, direction) - expected) < 1e-13 * scale);
            REQUIRE(problem.buffers.gaps_untouched(problem.dqkv));
        }
}

// Float: the error of a sum of at most 8 * 129 terms grows like the square root of their number: 1e-5. With bf16
// storage, o and dqkv are rounded too, and delta = Σ o dout inherits half an eps from o.
TEST_CASE("attention's gradient in float and bf16 agrees with double") {
    for (const DType storage : {DType::f32, DType::bf16})
        for (const AttentionCase& c : cases()) {
            INFO(name_of(storage) << ", " << describe(c));
            Problem problem(c, storage, documents(c, 40));
            problem.run(problem.forward());
            problem.run(problem.backward());
            Problem exact(c, DType::f64, documents(c, 40));
            const auto copy = [&](const View& from, const View& to) {
                for (std::int64_t m = 0; m < from.rows; ++m)
                    for (std::int64_t j = 0; j < from.cols; ++j)
                        exact.buffers.set(to, m, j, problem.buffers.get(from, m, j));
            };
            copy(problem.qkv, exact.qkv);
            copy(problem.dout, exact.dout);
            exact.run(exact.forward());
            exact.run(exact.backward());
            const double tolerance = storage == DType::bf16 ? 1.5 * epsilon(storage) : 1e-5;
            REQUIRE(relative_difference(problem.buffers.values(problem.dqkv), exact.buffers.values(exact.dqkv)) <
                    tolerance);
        }
}

// Scaling q up and k down by the same factor leaves every logit unchanged, so Σ q dq = Σ k dk within the group of a
// key/value head.
TEST_CASE("attention's gradient keeps the scale symmetry of q and k") {
    const AttentionCase c{2, 129, 8, 2, 16};
    Problem problem(c, DType::f64, documents(c, 50));
    problem.run(problem.forward());
    problem.run(problem.backward());
    const auto head_dot = [&](std::int64_t sequence, std::int64_t slot, double& terms) {
        double sum = 0;
        for (std::int64_t m = sequence * c.seq_len; m < (sequence + 1) * c.seq_len; ++m)
            for (std::int64_t j = slot * c.head_dim; j < (slot + 1) * c.head_dim; ++j) {
                const double term = problem.buffers.get(problem.qkv, m, j) * problem.buffers.get(problem.dqkv, m, j);
                sum += term;
                terms += std::abs(term);
            }
        return sum;
    };
    for (std::int64_t sequence = 0; sequence < c.batch; ++sequence)
        for (std::int64_t kv = 0; kv < c.kv_heads; ++kv) {
            double terms = 0, query = 0;
            for (std::int64_t h = 4 * kv; h < 4 * (kv + 1); ++h) query += head_dot(sequence, h, terms);
            const double key = head_dot(sequence, c.heads + kv, terms);
            REQUIRE(std::abs(query - key) < 1e-13 * terms);
        }
}

TEST_CASE("attention's results do not depend on the number of threads") {
    const AttentionCase c{2, 129, 4, 2, 16};
    for (const DType storage : {DType::f64, DType::f32, DType::bf16}) {
        require_same_bits_for_any_thread_count([&](Buffers& buffers) {
            Problem problem(c, storage, documents(c, 40));
            const Attention op = problem.forward();
            buffers = std::move(problem.buffers);
            return op;
        });
        require_same_bits_for_any_thread_count([&](Buffers& buffers) {
            Problem problem(c, storage, documents(c, 40));
            problem.run(problem.forward());
            const AttentionBackward op = problem.backward();
            buffers = std::move(problem.buffers);
            return op;
        });
    }
}

TEST_CASE("attention names what does not fit") {
    Problem problem({2, 4, 2, 1, 8}, DType::f32, {0, 0, 3, 0, 0, 0, 0, 0});
    REQUIRE_THROWS_WITH(problem.run(problem.forward()),
                        "Attention: doc_start[2] is 3, outside [0, 2], the positions up to the row's own");
    Attention op = problem.forward();
    op.doc_start = {};
    op.kv_heads = 3;
    REQUIRE_THROWS_WITH(problem.run(op), "Attention: 2 query heads are not a multiple of 3 key/value heads");
    op.kv_heads = 1;
    op.o.cols = 8;
    REQUIRE_THROWS_WITH(problem.run(op), "Attention: operand o is (8, 8), expected (8, 16)");
    op.o = View{};
    REQUIRE_THROWS_WITH(problem.run(op), "Attention: operand o is missing");
    op.window = 3;
    REQUIRE_THROWS_WITH(problem.run(op), "Attention: the window of 3 keys is in doc_start, which is missing");
}
