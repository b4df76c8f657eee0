// Mistakes planted in schedules, weights and tables: each must be far outside the tolerance of textbook_test.cpp.
#include <algorithm>

#include "tests/model/textbook_case.h"

using namespace coda;
using namespace coda::test;

namespace {

/// The largest error of a gradient where `change` has changed the schedules of both micro-batches.
template <class Change>
double gradient_error(const TextbookCase& c, const Change& change) {
    return compare(c, kFloat64,
                   [&](ModelRun& run) {
                       for (Schedule* schedule : {&run.schedules.first, &run.schedules.further}) change(*schedule);
                   })
        .gradient;
}

/// The same for what is derived from the weights.
template <class Change>
double gradient_error_of_derived(const TextbookCase& c, const Change& change) {
    return compare(c, kFloat64, [&](ModelRun& run) { change(run.schedules.derive); }).gradient;
}

/// Copies the elements of `from` to `to`. Both have the same shape and no gaps between rows.
FinishColumnSums copy_of(View from, View to) {
    for (View* view : {&from, &to}) {
        view->cols = view->ld = view->count();
        view->rows = 1;
    }
    FinishColumnSums op;
    op.add({.partials = from, .grad = {to, Beta::overwrite}});
    return op;
}

}  // namespace

TEST_CASE("planted mistakes are far outside the tolerance") {
    const TextbookCase c{.name = "planted", .bias = true, .sizes = {}, .micro_batches = 2};
    const auto error_with = [&](auto&& change) { return gradient_error(c, change); };

    SECTION("the norm statistic c dropped") {
        // dot of every norm backward read from the tokens' zero vector: replaced by a Zero right before its use.
        const double error = error_with([](Schedule& schedule) {
            for (std::size_t i = 0; i < schedule.size(); ++i) {
                if (const auto* op = std::get_if<LinearRmsBackward>(&schedule[i].op)) {
                    Step zero = schedule[i];
                    zero.op = Zero{.out = static_cast<const View&>(op->dot)};
                    schedule.insert(schedule.begin() + static_cast<long>(i++), zero);
                }
            }
        });
        CHECK(error > 0.01);
    }
    SECTION("1/d missing: c is a sum instead of a mean") {
        const double error = error_with([](Schedule& schedule) {
            for (std::size_t i = 0; i < schedule.size(); ++i) {
                if (const auto* op = std::get_if<FinishRowSum>(&schedule[i].op)) {
                    // Adding the statistic to itself four times gives 16 = d times its value.
                    const View sum = op->sum;
                    for (int doubling = 0; doubling < 4; ++doubling) {
                        Step again = schedule[i];
                        FinishColumnSums doubled;
                        doubled.add({.partials = sum, .grad = {sum, Beta::accumulate}});
                        again.op = doubled;
                        schedule.insert(schedule.begin() + static_cast<long>(++i), again);
                    }
                }
            }
        });
        CHECK(error > 0.01);
    }
    SECTION("the norm statistic less the bias of another layer") {
        const double error = error_with([](Schedule& schedule) {
            View first;
            change_ops<AttentionBackward>(schedule, [&](AttentionBackward& op) {
                if (!first) first = op.bias;
                op.bias = first;
            });
        });
        CHECK(error > 0.01);
    }
    SECTION("a forward pass without the bias") {
        const double error = error_with(
            [](Schedule& schedule) { change_ops<LinearRope>(schedule, [](LinearRope& op) { op.bias = {}; }); });
        CHECK(error > 0.01);
    }
    SECTION("RoPE without its rotation of q and k") {
        const double error = error_with(
            [](Schedule& schedule) { change_ops<LinearRope>(schedule, [](LinearRope& op) { op.rotated = 0; }); });
        CHECK(error > 0.01);
    }
    SECTION("weight gradients after dx has moved on") {
        const double error = error_with([](Schedule& schedule) {
            for (std::size_t i = 0; i + 1 < schedule.size(); ++i) {
                if (std::string(schedule[i].name) == "down_wgrad") std::swap(schedule[i], schedule[i + 1]), ++i;
            }
        });
        CHECK(error > 0.01);
    }
    SECTION("the gradient's statistic without the value heads") {
        const double error = error_with([](Schedule& schedule) {
            change_ops<FinishRowSum>(schedule, [](FinishRowSum& op) {
                if (op.partials.rows == 8) op.partials.rows = 6;  // H + 2 Hk = 8 partials; drop the Hk = 2 of v
            });
        });
        CHECK(error > 0.01);
    }
}

TEST_CASE("planted mistakes in the norms of q and k are far outside the tolerance") {
    const TextbookCase c{.name = "planted", .norms = true, .sizes = {}, .micro_batches = 2};
    const auto error_with = [&](auto&& change) { return gradient_error(c, change); };
    const auto backward_with = [&](auto&& change) {
        return error_with([&](Schedule& schedule) { change_ops<AttentionBackward>(schedule, change); });
    };
    const auto forward_with = [&](auto&& change) {
        return error_with([&](Schedule& schedule) { change_ops<LinearRope>(schedule, change); });
    };
    SECTION("no norm in the forward pass") {
        CHECK(forward_with([](LinearRope& op) { op.gain = op.pre = op.rho = View{}; }) > 0.01);
    }
    SECTION("the weight of q for k") {
        CHECK(forward_with([](LinearRope& op) { op.queries = op.rotated; }) > 0.01);
    }
    SECTION("another eps in the backward pass, whose part of the statistic is then wrong") {
        // The statistic's part of q and k is eps of a gradient, so 0 in its place is wrong by about that.
        CHECK(backward_with([](AttentionBackward& op) { op.eps = 0; }) > 1e-5);
        CHECK(backward_with([](AttentionBackward& op) { op.eps *= 2; }) > 1e-5);
    }
    SECTION("the gradients of the two weights swapped") {
        CHECK(error_with([](Schedule& schedule) {
                  for (Step& step : schedule) {
                      if (step.name != "head_norms_grad") continue;
                      auto& sums = std::get<FinishColumnSums>(step.op).sums;
                      std::swap(sums[0].partials, sums[1].partials);
                  }
              }) > 0.01);
    }
}

TEST_CASE("planted mistakes of GELU and of biases are far outside the tolerance") {
    const TextbookCase c{.name = "planted",
                         .bias = true,
                         .out_bias = true,
                         .mlp_bias = true,
                         .mlp = MlpKind::gelu_tanh,
                         .sizes = {},
                         .micro_batches = 2};
    const auto error_of = [&](auto&& change) { return gradient_error(c, change); };
    const auto error_with = [&]<class T>(void (*change)(T&)) {
        return error_of([&](Schedule& schedule) { change_ops<T>(schedule, change); });
    };
    CHECK(error_with(+[](LinearGeluBackward& op) { op.bias = {}; }) >
          0.01);  // the norm's statistic with the bias in it
    CHECK(error_with(+[](LinearGeluBackward& op) { op.rstd = {}; }) > 0.01);
    CHECK(error_with(+[](LinearGelu& op) { op.bias = {}; }) > 0.01);
    CHECK(error_with(+[](LinearResidualRms& op) { op.bias = {}; }) > 0.01);
    CHECK(error_with(+[](LinearGelu& op) { op.kind = Gelu::exact; }) > 1e-5);
    CHECK(error_with(+[](LinearGeluBackward& op) { op.kind = Gelu::exact; }) > 1e-4);
    // The gradient of attn_out's bias from dx as it was before the MLP's part of it, which is the gradient of down's.
    CHECK(error_of([](Schedule& schedule) {
              View before;  // the partials of Σ dx behind the MLP's branch
              for (Step& step : schedule) {
                  auto* op = std::get_if<FinishColumnSums>(&step.op);
                  if (step.name == "final_norm_grad" || step.name == "attn_norm_grad") before = op->sums[1].partials;
                  if (step.name == "mlp_norm_grad") static_cast<View&>(op->sums[1].partials) = before;
              }
          }) > 0.01);
}

TEST_CASE("planted mistakes of LayerNorm are far outside the tolerance") {
    const TextbookCase c{.name = "planted",
                         .bias = true,
                         .out_bias = true,
                         .mlp_bias = true,
                         .mlp = MlpKind::gelu_tanh,
                         .learned = true,
                         .layernorm = true,
                         .sizes = {},
                         .micro_batches = 2};
    const auto error_of = [&](auto&& change) { return gradient_error(c, change); };
    const auto error_with = [&]<class T>(void (*change)(T&)) {
        return error_of([&](Schedule& schedule) { change_ops<T>(schedule, change); });
    };
    const auto error_without = [&](const char* step) {
        return error_of([&](Schedule& schedule) {
            REQUIRE(std::erase_if(schedule, [&](const Step& each) { return each.name == step; }) > 0);
        });
    };
    CHECK(error_with(+[](Embed& op) { op.centred = false; }) > 0.01);
    const auto error_of_derived = [&](auto&& change) { return gradient_error_of_derived(c, change); };
    CHECK(error_of_derived([](Schedule& derive) { change_ops<FoldBeta>(derive, [](FoldBeta& op) { op.bias = {}; }); }) >
          0.01);
    CHECK(error_of_derived(
              [](Schedule& derive) { change_ops<FoldBeta>(derive, [](FoldBeta& op) { op.gamma = op.beta; }); }) > 0.01);
    CHECK(error_with(+[](BetaBackward& op) { op.beta.offset = 0; }) > 0.01);
    CHECK(error_with(+[](LayerNorm& op) { op.beta = op.gamma; }) > 0.01);
    CHECK(error_with(+[](LayerNormBackward& op) { op.rstd.offset += size_of(op.rstd.dtype); }) > 0.01);
    // The norm's statistic with W beta and the bias in it.
    CHECK(error_with(+[](LinearGeluBackward& op) { op.bias = {}; }) > 0.01);
    // Gradients that are right up to a multiple of (1, ..., 1), not centred.
    for (const char* step : {"centre_dx", "down_wgrad_centred", "attn_out_wgrad_centred"}) {
        INFO(step);
        CHECK(error_without(step) > 0.01);
    }
    for (const char* step : {"down_wgrad_centred", "attn_out_wgrad_centred"}) {
        INFO("the bias in " << step);
        CHECK(error_of([&](Schedule& schedule) {
                  bool found = false;
                  for (Step& each : schedule) {
                      if (each.name != step) continue;
                      found = true;
                      auto& op = std::get<CentreColumns>(each.op);
                      op.bias = op.bias_out = View{};
                  }
                  REQUIRE(found);
              }) > 0.01);
    }
    CHECK(error_without("qkv_beta") > 0.01);
    // The norm's bias in its gradient from Σ dz of all micro-batches so far, which is the gradient of the bias.
    CHECK(error_of([](Schedule& schedule) {
              View so_far;
              for (Step& step : schedule) {
                  if (step.name == "up_dz_sum") so_far = std::get<FinishColumnSums>(step.op).sums[1].grad;
                  if (step.name == "up_beta") std::get<BetaBackward>(step.op).db = so_far;
              }
          }) > 0.01);
    // A copy of a matrix or of a bias that puts a mean into the stream.
    for (const bool of_matrix : {true, false}) {
        INFO((of_matrix ? "matrix" : "bias"));
        CHECK(error_of_derived([&](Schedule& derive) {
                  const auto at = std::find_if(derive.begin(), derive.end(),
                                               [](const Step& step) { return step.name == "down_centred"; });
                  REQUIRE(at != derive.end());
                  const auto& op = std::get<CentreColumns>(at->op);
                  Step copy = *at;
                  copy.op = of_matrix ? copy_of(op.matrix, op.out) : copy_of(op.bias, op.bias_out);
                  derive.insert(at + 1, copy);
              }) > 0.01);
    }
}

TEST_CASE("planted mistakes in weights and tables are far outside the tolerance") {
    ModelConfig model = tiny_model();
    model.rope_scaling = small_yarn();
    const textbook::Weights weights = textbook::random_weights(model, 7);
    const std::vector<textbook::Batch> batches{random_batch(model, 2, 6, 1)};
    const textbook::Result truth = textbook::loss_and_gradients(model, weights, batches);
    ModelRun run(model, {}, kFloat64);
    run.start();
    run.set_weights(weights);

    SECTION("wrong RoPE sign") {
        std::vector<double> table = rope_table(model, 6);
        for (std::size_t i = 1; i < table.size(); i += 2) table[i] = -table[i];
        run.set_elements(run.schedules.host.rope, table);
    }
    SECTION("yarn without its attention factor") {
        std::vector<double> table = rope_table(model, 6);
        for (double& value : table) value /= textbook::attention_factor(model);
        run.set_elements(run.schedules.host.rope, table);
    }
    SECTION("gate and up swapped") {
        textbook::Weights swapped = weights;
        std::swap(swapped.at("model.layers.0.mlp.gate_proj.weight"), swapped.at("model.layers.0.mlp.up_proj.weight"));
        run.set_weights(swapped);
    }
    const double loss = run.step(batches);
    CHECK(std::abs(loss - truth.loss) / truth.loss > 1e-4);
    CHECK(worst_error(run.gradients(), truth.gradients) > 0.01);
}
