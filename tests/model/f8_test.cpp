// FP8 training on the CPU: a step compared with the textbook model in double, and what a run carries from step to step.
//
// An E4M3 element is rounded by 2.64% RMS, so a product of two such operands is off by sqrt(2) of it, 3.7%, of its RMS,
// and by 4.05% where the operands are Gaussian and some are subnormal.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "tests/catch.h"
#include "tests/model/f8_run.h"

using namespace coda;
using namespace coda::test;

namespace {

/// A gradient compared with the true one: its relative error, and the projection on it, which is 1 if it is right on
/// average.
struct Quality {
    double error, projection;
};

Quality quality_of(const textbook::Weights& found, const textbook::Weights& truth, const std::string& part) {
    double difference = 0, product = 0, square = 0;
    for (const auto& [name, values] : truth) {
        if (name.find(part) == std::string::npos) continue;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double here = found.at(name)[i];
            difference += (here - values[i]) * (here - values[i]);
            product += here * values[i];
            square += values[i] * values[i];
        }
    }
    return {std::sqrt(difference / square), product / square};
}

/// A weight gradient is off by the rounding of its own product, and of the products that made its two operands: the
/// forward product before it and the dgrad after it. Errors are random, so they add in squares. Errors from farther
/// away come over the residual stream, of which a branch is a part; they and what Gaussian operands do not cover are
/// allowed as much as one product. What an error of a factor 2 does is in the test of it. The gradient of gate and up
/// is made from both as kept in FP8, which adds as much as one product.
constexpr double kProduct = 0.0405;
const double kBound = std::sqrt(3 + 1) * kProduct, kGateUpBound = std::sqrt(3 + 1 + 1) * kProduct;

/// What of a step is farther from the textbook than FP8's rounding, a line each. Not q and k, whose gradient is what is
/// left of a row of dS that sums to 0: an error there is relatively larger.
std::string beyond(const textbook::Result& truth, double loss, const textbook::Weights& found) {
    std::string lines;
    const auto check = [&](const std::string& part, double error, double projection) {
        const Quality quality = quality_of(found, truth.gradients, part);
        if (quality.error <= error && std::abs(quality.projection - 1) <= projection) return;
        lines +=
            text(part.empty() ? "all" : part, ": error ", quality.error, ", projection ", quality.projection, "\n");
    };
    if (!(std::abs(loss / truth.loss - 1) <= 1e-3)) lines += text("loss ", loss, ", not ", truth.loss, "\n");
    check("", kProduct, 0.01);
    for (const char* over_the_stream : {"embed", "lm_head"}) check(over_the_stream, kProduct / 2, 0.01);
    for (std::int64_t layer = 0; layer < small_model().num_hidden_layers; ++layer) {
        const auto check_in_layer = [&](const char* module, double error, double projection) {
            check(text("layers.", layer, ".", module), error, projection);
        };
        for (const char* matrix : {"self_attn.v_proj", "self_attn.o_proj", "mlp.down_proj"}) {
            check_in_layer(matrix, kBound, 0.03);
        }
        for (const char* matrix : {"mlp.gate_proj", "mlp.up_proj"}) check_in_layer(matrix, kGateUpBound, 0.03);
        // From the dgrad's epilogue; of 32 elements, so that chance is half as large again.
        for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
            check_in_layer(norm, 1.5 * kBound, 0.05);
        }
    }
    return lines;
}

}  // namespace

TEST_CASE("a step with FP8 operands is as far from the textbook as their rounding") {
    const F8Case& c = kF8Cases[GENERATE(0, 1, 2)];
    INFO(c.name);
    const std::vector<textbook::Batch> batches = batches_of(1, 2);
    const textbook::Result truth = textbook::loss_and_gradients(small_model(), small_weights(), batches);
    F8Run run(c.precision);
    run.begin(batches);
    const double loss = run.step(batches);
    const textbook::Weights found = run.gradients();
    CHECK(beyond(truth, loss, found) == "");
    // It is FP8 that was tested: a product of its own is off by more than bf16 is.
    const std::int64_t layers = small_model().num_hidden_layers;
    for (std::int64_t l = c.precision.bf16_first_layers; l < layers - c.precision.bf16_last_layers; ++l)
        for (const char* matrix : {"self_attn.o_proj", "mlp.down_proj"})
            CHECK(quality_of(found, truth.gradients, text("layers.", l, ".", matrix)).error >= 0.9 * kProduct);
}

// The gradient of a bias sums dqkv before that is rounded to FP8. So its error comes from the products before: one for
// v, and dS for q and k, as above.
TEST_CASE("a step of a model with biases is as far from the textbook as FP8's rounding") {
    ModelConfig model = small_model();
    model.attention_bias = true;
    textbook::Weights weights = small_weights();
    for (const auto& [name, values] : textbook::random_weights(model, 11)) {
        if (!textbook::is_bias(name)) continue;
        for (const double value : values) weights[name].push_back(0.4 * value);  // as large as what it is added to
    }
    const std::vector<textbook::Batch> batches = batches_of(1, 2);
    const textbook::Result truth = textbook::loss_and_gradients(model, weights, batches);
    F8Run run(PrecisionConfig::fp8(), Recompute::none, kAllPasses, model);
    run.begin(batches, weights);
    const double loss = run.step(batches);
    const textbook::Weights found = run.gradients();
    CHECK(beyond(truth, loss, found) == "");
    for (const char* part : {"0.self_attn.v_proj.bias", "1.self_attn.v_proj.bias"}) {
        const Quality quality = quality_of(found, truth.gradients, part);
        INFO(part << ": error " << quality.error << ", projection " << quality.projection);
        CHECK(quality.error <= kBound);
        CHECK(std::abs(quality.projection - 1) <= 0.03);
    }
}

TEST_CASE("a step of a model with norms of q and k is as far from the textbook as FP8's rounding") {
    ModelConfig model = small_model();
    model.qk_norm = true;
    textbook::Weights weights = small_weights();
    for (const auto& [name, values] : textbook::random_weights(model, 11)) {
        if (weights.count(name) == 0) weights[name] = values;
    }
    const std::vector<textbook::Batch> batches = batches_of(1, 2);
    const textbook::Result truth = textbook::loss_and_gradients(model, weights, batches);
    F8Run run(PrecisionConfig::fp8(), Recompute::none, kAllPasses, model);
    run.begin(batches, weights);
    const double loss = run.step(batches);
    CHECK(beyond(truth, loss, run.gradients()) == "");
}

TEST_CASE("only the gradient of q, k and v is in e5m2, and a step has its rounding") {
    const std::vector<textbook::Batch> batches = batches_of(1, 2);
    const textbook::Result truth = textbook::loss_and_gradients(small_model(), small_weights(), batches);
    F8Run run(PrecisionConfig::fp8());
    run.begin(batches);
    run.step(batches);
    // An E5M2 element is rounded by 5.3% RMS: its product with an E4M3 one is off by 6%, the two before as ever.
    constexpr double kWide = 0.06;
    const textbook::Weights found = run.gradients();
    for (const char* matrix : {"layers.0.self_attn.v_proj", "layers.1.self_attn.v_proj"}) {
        const Quality quality = quality_of(found, truth.gradients, matrix);
        INFO(matrix << ": error " << quality.error << ", projection " << quality.projection);
        CHECK(quality.error >= 0.9 * kWide);
        CHECK(quality.error <= std::sqrt(kWide * kWide + 3 * kProduct * kProduct));
        CHECK(std::abs(quality.projection - 1) <= 0.03);
    }
    std::int64_t wide = 0;
    for (const auto* steps : {&run.schedules.first, &run.schedules.scales})
        for (const Step& step : *steps)
            for_each_operand(step.op, [&](const std::string&, const View& view, Access) {
                if (view.dtype != DType::f8e5m2) return;
                ++wide;
                CHECK((std::string(step.name) == "attention_backward" || std::string(step.name) == "qkv_dgrad" ||
                       std::string(step.name) == "qkv_wgrad"));
            });
    CHECK(wide == 2 * 4);  // of a layer: two are written, one is read by the dgrad and one by the wgrad
    for (const ScaledTensor& name : run.schedules.weights.tensors())
        CHECK((name.format == DType::f8e5m2) == (name.tensor == "qkv.output_gradient"));
    // s amax is at most 448, of which the log tells the part of 57344.
    for (const F8Record& record : run.scales->records(run.scales->read()->wait(), {}))
        CHECK((record.range < 0.01) == (record.tensor == "qkv.output_gradient"));
}

TEST_CASE("a gradient of q that is far smaller than v's is kept") {
    textbook::Weights weights = small_weights();
    for (auto& [name, values] : weights)  // so small a k makes a small gradient of q
        if (name.find("k_proj") != std::string::npos)
            for (double& value : values) value *= 0x1p-14;
    const std::vector<textbook::Batch> batches = batches_of(1);
    const textbook::Result truth = textbook::loss_and_gradients(small_model(), weights, batches);
    F8Run run(PrecisionConfig::fp8());
    run.begin(batches, weights);
    run.step(batches);
    CHECK(quality_of(run.gradients(), truth.gradients, "q_proj").error < 0.2);  // e4m3 would lose it: 0.8 and more
}

TEST_CASE("a factor of an FP8 product that is twice what it should be is beyond the bounds of a step") {
    const std::vector<textbook::Batch> batches = batches_of(1, 2);
    const textbook::Result truth = textbook::loss_and_gradients(small_model(), small_weights(), batches);
    F8Run run(PrecisionConfig::fp8());
    run.begin(batches);
    const View& view = run.schedules.host.f8.products;
    const std::vector<double> right = run.elements(view);
    REQUIRE(right.size() == 2 * 4 * 3);
    for (std::size_t product = 0; product < right.size(); ++product) {
        std::vector<double> wrong = right;
        wrong[product] *= 2;
        run.set_elements(view, wrong);
        const double loss = run.step(batches);
        INFO("product " << product);
        CHECK(beyond(truth, loss, run.gradients()) != "");
    }
}

TEST_CASE("two FP8 runs, and SwiGLU stored or recomputed, have the same bits") {
    const std::vector<textbook::Batch> batches = batches_of(1, 2);
    const auto after_steps = [&](Recompute recompute) {
        F8Run run(PrecisionConfig::fp8(), recompute);
        run.begin(batches);
        for (std::int64_t t = 1; t <= 3; ++t) run.train(t, batches_of(static_cast<std::uint64_t>(10 * t), 2));
        const HostViews& host = run.schedules.host;
        return std::array{run.elements(host.master), run.elements(host.m), run.elements(host.f8.history)};
    };
    const auto stored = after_steps(Recompute::none);
    CHECK(after_steps(Recompute::none) == stored);
    CHECK(after_steps(Recompute::swiglu) == stored);
}

TEST_CASE("calibration finds scales that use the range, and the log's record says so") {
    const std::vector<textbook::Batch> batches = batches_of(1);
    F8Run run(PrecisionConfig::fp8());
    run.begin(batches);
    CHECK_FALSE(run.scales->needs_calibration());
    run.step(batches);
    const std::vector<double> values = run.scales->read()->wait();
    CHECK(run.scales->records(values, {}).size() == 11);
    // s amax lies in the last binade below 448; the same batch again is off by its rounding. Of every layer:
    // a tensor whose amax nothing writes has the scale 1, and e4m3 hides that in its binades.
    const std::vector<ScaledTensor>& tensors = run.schedules.weights.tensors();
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        const double range = values[t] * values[tensors.size() + t] / 448;
        INFO(tensors[t].tensor << " of layer " << tensors[t].layer << ": " << range);
        CHECK(range > 0.5 * 0.9);
        CHECK(range < 1.1);
    }
}

TEST_CASE("a step that counts codes has the bits of one that does not, and finds what a scale loses") {
    const Recompute recompute = GENERATE(Recompute::none, Recompute::swiglu);
    PrecisionConfig precision = PrecisionConfig::fp8();
    precision.count_interval = 2;
    const std::vector<textbook::Batch> batches = batches_of(1, 2);
    F8Run run(precision, recompute);
    run.begin(batches);
    run.step(batches);
    const std::vector<double> plain = run.elements(run.schedules.host.gradient);

    CHECK(run.scales->counter(1) == nullptr);
    const auto counted = [&] {
        F8Counts* counter = run.scales->counter(2);
        REQUIRE(counter != nullptr);
        run.step(batches, [&](Pass pass) { run.executor->run_observed(pass, *counter); });
        return counter->counts();
    };
    std::vector<CodeCounts> counts = counted();
    CHECK(run.elements(run.schedules.host.gradient) == plain);
    REQUIRE(counts.size() == run.schedules.weights.tensors().size());
    const ScaleViews& views = run.schedules.host.f8;
    const auto index_of = [&](const char* tensor, int layer) {
        const std::vector<ScaledTensor>& all = run.schedules.weights.tensors();
        const auto found = std::find_if(all.begin(), all.end(), [&](const ScaledTensor& name) {
            return name.layer == layer && name.tensor == tensor;
        });
        REQUIRE(found != all.end());
        return static_cast<std::size_t>(found - all.begin());
    };
    const ModelConfig model = small_model();
    const std::int64_t tokens = 2 * kBatch * kSeqLen;
    for (int layer = 0; layer < 2; ++layer) {
        CHECK(counts[index_of("down.input", layer)].elements == tokens * model.intermediate_size);
        CHECK(counts[index_of("gate_up.output", layer)].elements == 2 * tokens * model.intermediate_size);
        CHECK(counts[index_of("gate_up.output_gradient", layer)].elements == 2 * tokens * model.intermediate_size);
        CHECK(counts[index_of("down.output_gradient", layer)].elements == tokens * model.hidden_size);
        CHECK(counts[index_of("attn_out.input", layer)].elements == tokens * model.hidden_size);
    }
    // Few elements are rounded to the end of the range, where a scale puts the largest one near it.
    const auto is_few = [](const CodeCounts& found) { return 100 * found.saturated < found.elements; };
    for (const CodeCounts& found : counts) CHECK(is_few(found));
    for (const Step& step : run.schedules.scales) {
        const auto* op = std::get_if<QuantiseF8>(&step.op);
        if (!op) continue;
        const std::vector<std::uint8_t> codes = run.codes(op->codes.rows);
        const std::string weight = step.name.substr(0, step.name.size() - std::strlen("_f8")) + ".weight";
        const CodeCounts& found = counts[index_of(weight.c_str(), step.layer)];
        INFO(weight << " of layer " << step.layer);
        CHECK(found.elements == std::ssize(codes));
        CHECK(found.saturated ==
              std::count_if(codes.begin(), codes.end(), [](int code) { return (code & 0x7f) >= 0x7e; }));
        CHECK(found.zeros == std::count_if(codes.begin(), codes.end(), [](int code) { return (code & 0x7f) == 0; }));
    }

    // A scale 2^10 times as large goes beyond the room that e5m2 has, one 2^-20 times as large loses all to zero. The
    // factors that undo them are left as they were, so these are tensors that no other FP8 tensor grows from.
    const std::size_t large = index_of("qkv.output_gradient", 0), small = index_of("down.input", 1);
    std::vector<double> scales = run.elements(views.scales);
    scales[large] *= 0x1p10;
    scales[small] *= 0x1p-20;
    run.set_elements(views.scales, scales);
    counts = counted();
    CHECK_FALSE(is_few(counts[large]));
    CHECK(counts[small].zeros == counts[small].elements);
    for (std::size_t i = 0; i < counts.size(); ++i) {
        INFO(i);
        if (i != large) CHECK(is_few(counts[i]));
    }
    const std::vector<F8Record> records = run.scales->records(run.scales->read()->wait(), counts);
    for (const F8Record& record : records) {
        INFO(record.tensor);
        REQUIRE(record.lost.has_value());
        CHECK((record.lost->saturated > 0.01) == (record.tensor == "qkv.output_gradient"));
        CHECK((record.lost->saturated > 0.01) == (record.range > 1));
        CHECK((record.lost->zeros == 1) == (record.tensor == "down.input"));
    }
}

TEST_CASE("a dropped update leaves scales, history and the weights' copies") {
    const std::vector<textbook::Batch> batches = batches_of(1);
    F8Run run(PrecisionConfig::fp8());
    run.begin(batches);
    run.train(1, batches);
    const HostViews& host = run.schedules.host;
    std::vector<View> views{host.f8.history, host.f8.scales, host.f8.products, host.f8.amax, host.master};
    for (const Step& step : run.schedules.scales)
        if (const auto* op = std::get_if<QuantiseF8>(&step.op)) views.push_back(op->codes.rows);
    CHECK(views.size() == 5 + 2 * 4);
    const auto state = [&] {
        std::vector<std::uint8_t> bytes;
        for (const View& view : views) {
            const std::vector<std::uint8_t> more = run.codes(view);
            bytes.insert(bytes.end(), more.begin(), more.end());
        }
        return bytes;
    };
    const std::vector<std::uint8_t> before = state();
    run.step(batches_of(2));
    upload_scalar(*run.executor, host.drop_above, -1);
    run.executor->run(Pass::update);
    CHECK(state() == before);
}
