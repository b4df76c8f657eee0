// The oracle's own tests: its tape against the complex step on every parameter element, and properties of any LLaMA.
// hf_reference_test.cpp compares it with an independent implementation.
#include "tests/oracle/textbook.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/oracle/textbook_model.h"
#include "tests/tiny_model.h"

using namespace coda;
using namespace coda::textbook;
using Complex = std::complex<double>;

namespace {

constexpr int kIgnored = -100;

ModelConfig small_config() {
    ModelConfig config = coda::test::tiny_model();
    config.intermediate_size = 12;
    config.vocab_size = 19;
    return config;
}

/// Context 32 puts the four wavelengths of small_config (6.3, 20, 63, 199) in all three bands.
RopeScaling small_scaling() { return {8, 1, 4, 32}; }

Batch random_batch(const ModelConfig& config, std::uint64_t seed, std::int64_t batch, std::int64_t seq_len,
                   std::int64_t ignored = 0) {
    std::mt19937_64 bits(seed);
    std::uniform_int_distribution<int> token(0, static_cast<int>(config.vocab_size) - 1);
    Batch result{batch, seq_len, {}, {}, {}, false};
    for (std::int64_t m = 0; m < batch * seq_len; ++m) {
        result.tokens.push_back(token(bits));
        result.targets.push_back(m < ignored ? kIgnored : token(bits));
    }
    return result;
}

double largest_magnitude(const std::vector<double>& values) {
    double result = 0;
    for (const double value : values) result = std::max(result, std::abs(value));
    return result;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double result = 0;
    for (std::size_t i = 0; i < a.size(); ++i) result = std::max(result, std::abs(a[i] - b[i]));
    return result;
}

/// The derivative of every element agrees between tape and complex step to 1e-13 of the tensor's largest. Both are
/// exact up to rounding; sums of at most a few thousand terms of mixed sign lose about two of the sixteen digits.
void check_gradients(const ModelConfig& config, const std::vector<Batch>& micro_batches) {
    const Weights weights = random_weights(config, 1);
    const Result result = loss_and_gradients(config, weights, micro_batches);
    CHECK(result.loss == Approx(loss(config, weights, micro_batches)).epsilon(1e-14));

    Parameters<Complex> parameters;
    for (const auto& [name, values] : weights) parameters[name].assign(values.begin(), values.end());
    constexpr double kStep = 1e-30;
    for (auto& [name, values] : parameters) {
        std::vector<double> expected;
        for (Complex& value : values) {
            value.imag(kStep);
            expected.push_back(model_loss(config, parameters, micro_batches).imag() / kStep);
            value.imag(0);
        }
        INFO(name);
        CHECK(largest_magnitude(expected) > 1e-4);
        CHECK(largest_difference(result.gradients.at(name), expected) <= 1e-13 * largest_magnitude(expected));
    }
}

}  // namespace

TEST_CASE("tape gradients agree with the complex step on every parameter element") {
    ModelConfig config = small_config();
    SECTION("untied head") { check_gradients(config, {random_batch(config, 2, 1, 6)}); }
    SECTION("tied head, rope scaling, ignored targets, micro-batches of unequal valid counts") {
        config.tie_word_embeddings = true;
        config.rope_scaling = small_scaling();
        check_gradients(config, {random_batch(config, 2, 1, 6, 1), random_batch(config, 3, 1, 5, 3)});
    }
    SECTION("norms of q and k, an eps that counts") {
        config.qk_norm = true;
        config.rms_norm_eps = 0.05;
        check_gradients(config, {random_batch(config, 2, 1, 6)});
    }
    SECTION("documents with restarted positions, every head its own keys, biases") {
        config.num_key_value_heads = 4;
        config.attention_bias = true;
        Batch batch = random_batch(config, 2, 2, 6, 2);
        batch.document = {0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 4, 4};
        batch.restart_positions = true;
        check_gradients(config, {batch});
    }
    SECTION("a window of 3 keys") {
        config.sliding_window = 3;
        check_gradients(config, {random_batch(config, 2, 1, 7)});
    }
    SECTION("learned positions") {
        config.position_embeddings = PositionEmbeddings::learned;
        config.max_position_embeddings = 6;
        check_gradients(config, {random_batch(config, 2, 2, 6, 1)});
    }
    SECTION("an MLP with GELU, every bias") {
        config.mlp = GENERATE(MlpKind::gelu_tanh, MlpKind::gelu_exact);
        config.attention_bias = config.attention_out_bias = config.mlp_bias = true;
        check_gradients(config, {random_batch(config, 2, 1, 6, 1)});
    }
}

TEST_CASE("a query sees the last keys of its window, its own included, and of its document") {
    Batch batch;
    batch.batch = 2;
    batch.seq_len = 6;
    using Rows = std::vector<std::int64_t>;
    CHECK(visible_rows(batch, 4, 0) == Rows{0, 1, 2, 3, 4});
    CHECK(visible_rows(batch, 4, 3) == Rows{2, 3, 4});
    CHECK(visible_rows(batch, 7, 3) == Rows{6, 7});
    CHECK(visible_rows(batch, 4, 1) == Rows{4});
    batch.document = {0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2};
    CHECK(visible_rows(batch, 4, 3) == Rows{3, 4});
}

TEST_CASE("GELU is what std::erf and std::tanh make of it") {
    Matrix<double> x(1, 65);
    for (std::int64_t j = 0; j < x.columns; ++j) x(0, j) = static_cast<double>(j) / 4 - 8;
    const Matrix<double> exact = gelu(x, MlpKind::gelu_exact), tanh = gelu(x, MlpKind::gelu_tanh);
    for (std::int64_t j = 0; j < x.columns; ++j) {
        const double z = x(0, j), cubic = std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z);
        CHECK(std::abs(exact(0, j) - z * (1 + std::erf(z / std::numbers::sqrt2)) / 2) <= 1e-15 * (1 + std::abs(z)));
        CHECK(std::abs(tanh(0, j) - z * (1 + std::tanh(cubic)) / 2) <= 1e-15 * (1 + std::abs(z)));
    }
}

TEST_CASE("a zero LM head gives the loss log V, and its gradient is (1/V - [target]) of the normalised stream") {
    const ModelConfig config = small_config();
    Weights weights = random_weights(config, 1);
    std::fill(weights.at("lm_head.weight").begin(), weights.at("lm_head.weight").end(), 0.0);
    const Batch batch = random_batch(config, 2, 1, 6, 5);
    const Result result = loss_and_gradients(config, weights, {batch});
    CHECK(result.loss == Approx(std::log(19.0)).epsilon(1e-15));

    const auto d = static_cast<std::size_t>(config.hidden_size);
    const std::vector<double>& gradient = result.gradients.at("lm_head.weight");
    const auto target = static_cast<std::size_t>(batch.targets.back());
    for (std::size_t j = 0; j < d; ++j) {
        const std::size_t other = (target + 1) % 19 * d + j;
        CHECK(gradient[target * d + j] == Approx(-18 * gradient[other]).epsilon(1e-13));
    }
    CHECK(result.gradients.at("lm_head.weight").size() == 19 * d);
    CHECK(largest_magnitude(result.gradients.at("model.embed_tokens.weight")) == 0);
}

TEST_CASE("a perfectly predicted target costs nothing, a target 1 nat below the rest log(1 + (V - 1) e)") {
    const std::vector<int> target = {2};
    Matrix<double> logits(1, 4);
    logits(0, 2) = 800;
    CHECK(cross_entropy_sum(logits, target) == 0);
    logits(0, 2) = -1;
    CHECK(cross_entropy_sum(logits, target) == Approx(std::log(1 + 3 * std::exp(1.0))).epsilon(1e-15));
    CHECK(cross_entropy_sum(logits, {-1}) == 0);
}

TEST_CASE("rms norm by hand: (3, 4) with eps 0 has the root mean square sqrt(12.5); eps is inside the root") {
    Matrix<double> x(1, 2);
    x(0, 0) = 3;
    x(0, 1) = 4;
    const Matrix<double> y = rms_norm<double>(x, {1, 2}, 0);
    CHECK(y(0, 0) == Approx(3 / std::sqrt(12.5)).epsilon(1e-15));
    CHECK(y(0, 1) == Approx(8 / std::sqrt(12.5)).epsilon(1e-15));
    CHECK(rms_norm<double>(x, {1, 2}, 3.5)(0, 0) == Approx(0.75).epsilon(1e-15));
}

TEST_CASE("a norm of heads by hand: (3, 4) and (0, 2) have root mean squares of their own, and one weight") {
    Matrix<double> x(1, 4);
    x.data = {3, 4, 0, 2};
    const Matrix<double> y = norm_heads<double>(x, {1, 2}, 0);
    CHECK(y(0, 0) == Approx(3 / std::sqrt(12.5)).epsilon(1e-15));
    CHECK(y(0, 1) == Approx(8 / std::sqrt(12.5)).epsilon(1e-15));
    CHECK(y(0, 2) == 0);
    CHECK(y(0, 3) == Approx(2 * std::sqrt(2.0)).epsilon(1e-15));
}

TEST_CASE("swiglu by hand: silu(log 3) = 3/4 log 3") {
    Matrix<double> gate(1, 1);
    Matrix<double> up(1, 1);
    gate(0, 0) = std::log(3.0);
    up(0, 0) = 8;
    CHECK(swiglu(gate, up)(0, 0) == Approx(6 * std::log(3.0)).epsilon(1e-15));
}

TEST_CASE("attention by hand, also where scores are too large for exp") {
    Matrix<double> q(2, 1);
    Matrix<double> k(2, 1);
    Matrix<double> v(2, 1);
    q(1, 0) = 1;
    k(1, 0) = std::log(3.0);
    v(0, 0) = 4;
    v(1, 0) = 8;
    const Batch batch{1, 2, {0, 0}, {0, 0}, {}, false};
    const Matrix<double> o = attention(q, k, v, 1, batch, 0);
    CHECK(o(0, 0) == 4);
    CHECK(o(1, 0) == Approx(4 * 0.25 + 8 * 0.75).epsilon(1e-15));
    k(1, 0) = 1000;
    CHECK(attention(q, k, v, 1, batch, 0)(1, 0) == 8);
}

TEST_CASE("RoPE turns counter-clockwise, keeps norms, and makes scores depend only on the distance") {
    const std::vector<double> frequencies = inverse_frequencies(small_config());
    const double quarter = std::acos(0.0);
    Matrix<double> x(1, 2);
    x(0, 0) = 1;
    const Matrix<double> turned = rotate_half(x, {quarter}, {1});
    CHECK(std::abs(turned(0, 0)) < 1e-15);
    CHECK(turned(0, 1) == Approx(1).epsilon(1e-15));

    Matrix<double> q(1, 8);
    Matrix<double> k(1, 8);
    for (std::int64_t j = 0; j < 8; ++j) {
        q(0, j) = std::sin(1.0 + static_cast<double>(j));
        k(0, j) = std::cos(2.0 * static_cast<double>(j));
    }
    const auto score = [&](std::int64_t query, std::int64_t key) {
        const Matrix<double> a = rotate_half(q, frequencies, {query});
        const Matrix<double> b = rotate_half(k, frequencies, {key});
        return dot(a.row(0), b.row(0));
    };
    CHECK(dot(q.row(0), q.row(0)) ==
          Approx(dot(rotate_half(q, frequencies, {5}).row(0), rotate_half(q, frequencies, {5}).row(0))).epsilon(1e-14));
    CHECK(score(7, 3) == Approx(score(4, 0)).epsilon(1e-13));
    CHECK(std::abs(score(7, 3) - score(3, 7)) > 0.01);
}

TEST_CASE("llama3 rope scaling keeps short waves, slows long ones by the factor and blends between") {
    ModelConfig config = small_config();
    config.rope_theta = 500000;
    const std::vector<double> plain = inverse_frequencies(config);
    CHECK(plain[0] == 1);
    CHECK(plain[3] == Approx(std::pow(500000.0, -0.75)).epsilon(1e-15));

    config.rope_scaling = RopeScaling{};  // LLaMA 3.1; the wavelengths are 6.3, 167, 4443, 118000
    const std::vector<double> scaled = inverse_frequencies(config);
    CHECK(scaled[0] == plain[0]);
    CHECK(scaled[1] == plain[1]);
    const double share = (8192 / (2 * std::acos(-1.0) / plain[2]) - 1) / 3;
    CHECK(scaled[2] == Approx(plain[2] * (share + (1 - share) / 8)).epsilon(1e-14));
    CHECK(scaled[3] == Approx(plain[3] / 8).epsilon(1e-15));
}

TEST_CASE("a token sees itself and the tokens before it") {
    const ModelConfig config = small_config();
    const Weights weights = random_weights(config, 1);
    Batch batch = random_batch(config, 2, 2, 6);
    const std::vector<double> before = logits(config, weights, batch);
    batch.tokens[3] = (batch.tokens[3] + 1) % 19;
    const std::vector<double> after = logits(config, weights, batch);
    for (std::size_t m = 0; m < 12; ++m) {
        double difference = 0;
        for (std::size_t v = 0; v < 19; ++v)
            difference = std::max(difference, std::abs(before[m * 19 + v] - after[m * 19 + v]));
        INFO("row " << m);
        if (m < 3 || m > 5)
            CHECK(difference == 0);
        else
            CHECK(difference > 1e-3);
    }
}

TEST_CASE("packed documents give the logits they have by themselves, whether positions restart or run on") {
    const ModelConfig config = small_config();
    const Weights weights = random_weights(config, 1);
    Batch packed = random_batch(config, 2, 1, 9);
    packed.document = {5, 5, 5, 5, 2, 2, 2, 2, 2};
    packed.restart_positions = true;
    const std::vector<double> together = logits(config, weights, packed);

    const auto slice = [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
        return Batch{1,
                     end - begin,
                     {packed.tokens.begin() + begin, packed.tokens.begin() + end},
                     {packed.targets.begin() + begin, packed.targets.begin() + end},
                     {},
                     false};
    };
    std::vector<double> alone = logits(config, weights, slice(0, 4));
    const std::vector<double> second = logits(config, weights, slice(4, 9));
    alone.insert(alone.end(), second.begin(), second.end());
    CHECK(largest_difference(together, alone) == 0);

    packed.restart_positions = false;  // other angles, but the same differences between angles
    const std::vector<double> running = logits(config, weights, packed);
    CHECK(largest_difference(together, running) > 0);
    CHECK(largest_difference(together, running) < 1e-13 * largest_magnitude(together));
}

TEST_CASE("grouped-query attention equals full attention with every key/value head written twice") {
    const ModelConfig grouped = small_config();
    const Weights weights = random_weights(grouped, 1);
    ModelConfig full = grouped;
    full.num_key_value_heads = 4;
    Weights repeated = weights;
    for (auto& [name, values] : repeated) {
        if (!name.ends_with("k_proj.weight") && !name.ends_with("v_proj.weight")) continue;
        const std::vector<double> heads = values;
        const std::ptrdiff_t head = 8 * 16;
        values.clear();
        for (const std::ptrdiff_t source : {0, 0, 1, 1})
            values.insert(values.end(), heads.begin() + source * head, heads.begin() + (source + 1) * head);
    }
    const Batch batch = random_batch(grouped, 2, 1, 7);
    CHECK(logits(grouped, weights, batch) == logits(full, repeated, batch));
}

TEST_CASE("a step is weighted by targets, not by micro-batches, and ignored targets do not count") {
    const ModelConfig config = small_config();
    const Weights weights = random_weights(config, 1);
    const Batch a = random_batch(config, 2, 1, 6);     // 6 valid targets
    const Batch b = random_batch(config, 3, 1, 6, 4);  // 2
    const double expected = (6 * loss(config, weights, {a}) + 2 * loss(config, weights, {b})) / 8;
    CHECK(loss(config, weights, {a, b}) == Approx(expected).epsilon(1e-14));

    Batch both = a;
    both.batch = 2;
    both.tokens.insert(both.tokens.end(), b.tokens.begin(), b.tokens.end());
    both.targets.insert(both.targets.end(), b.targets.begin(), b.targets.end());
    CHECK(loss(config, weights, {both}) == Approx(expected).epsilon(1e-14));
}

TEST_CASE("zero sizes in the configuration stand for Hugging Face's defaults") {
    ModelConfig config = small_config();
    config.hidden_size = 32;
    config.num_key_value_heads = 0;
    config.head_dim = 0;
    const auto shapes = weight_shapes(config);
    CHECK(shapes.at("model.layers.1.self_attn.k_proj.weight") == std::vector<std::int64_t>{32, 32});
    CHECK(shapes.size() == 3 + 2 * 9);
    CHECK(inverse_frequencies(config).size() == 4);
}

TEST_CASE("bad weights and batches are refused") {
    const ModelConfig config = small_config();
    const Weights weights = random_weights(config, 1);
    const Batch good = random_batch(config, 2, 1, 6);
    const auto refuses = [&](const Weights& w, const Batch& batch) {
        CHECK_THROWS_AS(loss(config, w, {batch}), std::invalid_argument);
        CHECK_THROWS_AS(loss_and_gradients(config, w, {batch}), std::invalid_argument);
    };
    Weights missing = weights;
    missing.erase("model.norm.weight");
    refuses(missing, good);
    Weights short_one = weights;
    short_one.at("lm_head.weight").pop_back();
    refuses(short_one, good);
    Weights unexpected = weights;
    unexpected["model.layers.2.mlp.up_proj.weight"] = {1};
    refuses(unexpected, good);
    Batch batch = good;
    batch.tokens[0] = 19;
    refuses(weights, batch);
    batch = good;
    batch.targets[0] = 19;
    refuses(weights, batch);
    batch = good;
    batch.document = {0, 1, 0, 2, 2, 2};
    refuses(weights, batch);
    batch = good;
    std::fill(batch.targets.begin(), batch.targets.end(), kIgnored);
    refuses(weights, batch);
}
