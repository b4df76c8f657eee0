// Closed forms of AdamW. hf_reference_test.cpp compares ten steps with torch's AdamW.
#include "tests/oracle/adamw.h"

#include <cmath>
#include <stdexcept>

#include "tests/catch.h"

using namespace coda::textbook;

TEST_CASE("under a constant gradient every AdamW step is learning_rate g / (|g| + eps), whatever the betas") {
    AdamW optimizer({0.8, 0.99, 0.5, 0, 0});
    Weights weights = {{"a.weight", {1, 1}}};
    for (int t = 1; t <= 5; ++t) {
        optimizer.step(weights, {{"a.weight", {2, -0.25}}}, 0.1);
        CHECK(weights.at("a.weight")[0] == Approx(1 - t * 0.1 * 2 / 2.5).epsilon(1e-14));
        CHECK(weights.at("a.weight")[1] == Approx(1 + t * 0.1 * 0.25 / 0.75).epsilon(1e-14));
    }
}

TEST_CASE("two different gradients weigh in with the betas") {
    AdamW optimizer({0.5, 0.75, 0, 0, 0});
    Weights weights = {{"a.weight", {0}}};
    optimizer.step(weights, {{"a.weight", {1}}}, 1);
    CHECK(weights.at("a.weight")[0] == Approx(-1).epsilon(1e-15));
    optimizer.step(weights, {{"a.weight", {3}}}, 1);  // m = (1/4 + 3/2) / (3/4), v = (3/16 + 9/4) / (7/16)
    CHECK(weights.at("a.weight")[0] == Approx(-1 - (7.0 / 3) / std::sqrt(39.0 / 7)).epsilon(1e-14));
}

TEST_CASE("decay is decoupled from the gradient and spares norms") {
    AdamW optimizer({0.9, 0.95, 1e-8, 0.1, 1});
    Weights weights = {{"model.layers.0.mlp.up_proj.weight", {2}},
                       {"model.embed_tokens.weight", {3}},
                       {"model.layers.0.input_layernorm.weight", {2}},
                       {"model.norm.weight", {2}}};
    Weights zero = weights;
    for (auto& entry : zero) entry.second = {0};
    CHECK(optimizer.step(weights, zero, 0.5) == 0);
    CHECK(weights.at("model.layers.0.mlp.up_proj.weight")[0] == Approx(2 * 0.95).epsilon(1e-15));
    CHECK(weights.at("model.embed_tokens.weight")[0] == Approx(3 * 0.95).epsilon(1e-15));
    CHECK(weights.at("model.layers.0.input_layernorm.weight")[0] == 2);
    CHECK(weights.at("model.norm.weight")[0] == 2);
}

TEST_CASE("clipping scales all tensors by the one global norm, and only above the limit") {
    const Weights gradients = {{"a.weight", {3}}, {"model.norm.weight", {4}}};
    CHECK(global_norm(gradients) == 5);
    const auto moved = [&](double max_grad_norm) {
        AdamW optimizer({0.9, 0.95, 1, 0, max_grad_norm});
        Weights weights = {{"a.weight", {0}}, {"model.norm.weight", {0}}};
        CHECK(optimizer.step(weights, gradients, 1) == 5);
        return weights;
    };
    CHECK(moved(0).at("a.weight")[0] == Approx(-3.0 / 4).epsilon(1e-15));
    CHECK(moved(6).at("a.weight")[0] == Approx(-3.0 / 4).epsilon(1e-15));
    CHECK(moved(2.5).at("a.weight")[0] == Approx(-1.5 / 2.5).epsilon(1e-15));
    CHECK(moved(2.5).at("model.norm.weight")[0] == Approx(-2.0 / 3).epsilon(1e-15));
}

TEST_CASE("a weight without gradient is an error") {
    AdamW optimizer({});
    Weights weights = {{"a.weight", {0}}};
    CHECK_THROWS_AS(optimizer.step(weights, {}, 1), std::out_of_range);
}
