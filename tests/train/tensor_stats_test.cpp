// The tensors that --tensor-stats names are the textbook's: a gradient of an output times an input is the gradient of
// the weight between them.
#include "src/engine/tensor_stats.h"

#include <cmath>
#include <map>

#include "tests/catch.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

/// Rows by columns.
struct Dense {
    std::int64_t cols = 0;
    std::vector<double> values{};
    std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / cols; }
    double at(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * cols + c)]; }
};

using Key = std::pair<int, std::string>;

/// Reads every tensor in full, for comparison with what a TensorWatch makes of it.
class Reader : public StepObserver {
  public:
    Reader(ModelRun& run) : run_(run), watch_(*run.executor, run.schedules) {}
    bool reads_results() const override { return true; }

    void after(Pass pass, std::size_t index, double start_us, double ms) override {
        watch_.after(pass, index, start_us, ms);
        const Step& step = run_.schedules[pass][index];
        for (const GemmTensor& tensor : gemm_tensors(step, run_.schedules.weights)) {
            Dense& whole = tensors[{step.layer, tensor.name}];
            if (tensor.name.ends_with(".weight")) whole.values.clear();  // read once per micro-batch and chunk
            whole.cols = tensor.view.cols;
            const std::vector<double> stored = run_.elements(tensor.view), times = optional(tensor.scalars.times),
                                      over = optional(tensor.scalars.over), factor = optional(tensor.scalars.factor);
            for (std::size_t i = 0; i < stored.size(); ++i) {
                const std::size_t r = i / static_cast<std::size_t>(whole.cols);
                whole.values.push_back(stored[i] * (times.empty() ? 1 : times[r]) / (over.empty() ? 1 : over[r]) *
                                       (factor.empty() ? 1 : factor[0]));
            }
        }
    }
    std::vector<TensorRecord> records() { return watch_.take(); }

    std::map<Key, Dense> tensors;

  private:
    std::vector<double> optional(const View& view) { return view ? run_.elements(view) : std::vector<double>{}; }

    ModelRun& run_;
    TensorWatch watch_;
};

/// A weight of the textbook and the rows of the program's matrix that hold it.
struct Part {
    std::string name;
    std::int64_t first = 0, step = 1;
    std::int64_t head_dim = 0;  // with it, the halves of each head's rows alternate

    /// The program's row of row r.
    std::int64_t row(std::int64_t r) const {
        if (head_dim == 0) return first + step * r;
        const std::int64_t in_head = r % head_dim, half = head_dim / 2;
        return first + r - in_head + 2 * (in_head % half) + in_head / half;
    }
};

struct MatrixParts {
    Key key;
    std::string norm;  // before the matrix; empty without one
    std::vector<Part> parts;
};

std::vector<MatrixParts> matrices_of(const ModelConfig& m) {
    const std::int64_t q = m.num_attention_heads * m.head_dim, kv = m.num_key_value_heads * m.head_dim;
    std::vector<MatrixParts> all;
    for (int layer = 0; layer < m.num_hidden_layers; ++layer) {
        const std::string in = text("model.layers.", layer, ".");
        all.push_back({{layer, "qkv"},
                       in + "input_layernorm.weight",
                       {{.name = in + "self_attn.q_proj.weight", .head_dim = m.head_dim},
                        {.name = in + "self_attn.k_proj.weight", .first = q, .head_dim = m.head_dim},
                        {.name = in + "self_attn.v_proj.weight", .first = q + kv}}});
        all.push_back({{layer, "attn_out"}, "", {{.name = in + "self_attn.o_proj.weight"}}});
        all.push_back({{layer, "gate_up"},
                       in + "post_attention_layernorm.weight",
                       {{.name = in + "mlp.gate_proj.weight", .step = 2},
                        {.name = in + "mlp.up_proj.weight", .first = 1, .step = 2}}});
        all.push_back({{layer, "down"}, "", {{.name = in + "mlp.down_proj.weight"}}});
    }
    all.push_back({{-1, "lm_head"}, "model.norm.weight", {{.name = "lm_head.weight"}}});
    return all;
}

double close(double a, double b) { return std::abs(a - b) / std::max(1e-3, std::abs(b)); }

}  // namespace

TEST_CASE("inputs, weights and output gradients of all matrices are the textbook's") {
    const ModelConfig model = tiny_model();
    const Recompute recompute = GENERATE(Recompute::none, Recompute::swiglu, Recompute::mlp);
    const std::int64_t chunks = GENERATE(1, 2);
    INFO("recompute " << static_cast<int>(recompute) << ", chunks " << chunks);
    ModelRun run(model, {.batch = 2, .seq_len = 6, .chunks = chunks, .recompute = recompute}, kFloat64);
    run.start();
    const textbook::Weights weights = textbook::random_weights(model, 5);
    run.set_weights(weights);
    const std::vector<textbook::Batch> batches{random_batch(model, 2, 6, 1), random_batch(model, 2, 6, 2)};
    Reader reader(run);
    run.step(batches, [&](Pass pass) { run.executor->run_observed(pass, reader); });
    const textbook::Weights expected = textbook::loss_and_gradients(model, weights, batches).gradients;

    for (const MatrixParts& matrix : matrices_of(model)) {
        const auto tensor = [&](const char* role) -> const Dense& {
            return reader.tensors.at({matrix.key.first, matrix.key.second + "." + role});
        };
        const Dense &input = tensor("input"), &gradient = tensor("output_gradient"), &weight = tensor("weight");
        REQUIRE(input.rows() == 2 * 2 * 6);
        REQUIRE(gradient.rows() == input.rows());
        REQUIRE(weight.cols == input.cols);
        double worst_gradient = 0, worst_weight = 0;
        for (const Part& part : matrix.parts) {
            const std::vector<double>& of_weight = expected.at(part.name);
            const auto rows = static_cast<std::int64_t>(of_weight.size()) / input.cols;
            for (std::int64_t r = 0; r < rows; ++r) {
                for (std::int64_t c = 0; c < input.cols; ++c) {
                    const double gamma = matrix.norm.empty() ? 1 : weights.at(matrix.norm)[static_cast<std::size_t>(c)];
                    double sum = 0;
                    for (std::int64_t m = 0; m < input.rows(); ++m) sum += gradient.at(m, part.row(r)) * input.at(m, c);
                    const auto i = static_cast<std::size_t>(r * input.cols + c);
                    worst_gradient = std::max(worst_gradient, close(sum * gamma, of_weight[i]));
                    const double folded = weights.at(part.name)[i] * gamma;
                    worst_weight = std::max(worst_weight, close(weight.at(part.row(r), c), folded));
                }
            }
        }
        INFO("layer " << matrix.key.first << " " << matrix.key.second);
        CHECK(worst_gradient < 1e-11);
        CHECK(worst_weight < 1e-15);
    }

    // What the watch says of them, compared with loops over all elements.
    const std::vector<TensorRecord> records = reader.records();
    REQUIRE(records.size() == reader.tensors.size());
    CHECK(records.size() == 3 * matrices_of(model).size());
    CHECK(records.front().name == "qkv.input");
    for (const TensorRecord& record : records) {
        INFO("layer " << record.layer << " " << record.name);
        const Dense& tensor = reader.tensors.at({record.layer, record.name});
        double amax = 0, square = 0, peak = 0;
        std::int64_t zeros = 0;
        for (std::int64_t r = 0; r < tensor.rows(); ++r) {
            double row_max = 0, row_square = 0;
            for (std::int64_t c = 0; c < tensor.cols; ++c) {
                const double value = tensor.at(r, c);
                row_max = std::max(row_max, std::abs(value));
                row_square += value * value;
                zeros += value == 0;
            }
            amax = std::max(amax, row_max);
            square += row_square;
            if (row_square > 0) {
                peak = std::max(peak, row_max / std::sqrt(row_square / static_cast<double>(tensor.cols)));
            }
        }
        const auto count = static_cast<double>(tensor.values.size());
        CHECK(record.stats.amax == Approx(amax).epsilon(1e-13));
        CHECK(record.stats.rms() == Approx(std::sqrt(square / count)).epsilon(1e-13));
        CHECK(record.stats.row_peak == Approx(peak).epsilon(1e-13));
        CHECK(static_cast<double>(record.stats.zeros) / static_cast<double>(record.stats.elements) ==
              Approx(static_cast<double>(zeros) / count).epsilon(1e-13));
        CHECK((record.name != "lm_head.output_gradient" || zeros > 0));  // rows of ignored targets
    }
    CHECK(reader.records().empty());
}

TEST_CASE("a watched step has the bits of one that is not") {
    const ModelConfig model = tiny_model();
    const Precision precision = GENERATE(kFloat32, kMixedBf16);
    const textbook::Batch batch = random_batch(model, 2, 6, 1);
    std::vector<textbook::Weights> gradients;
    for (const bool watched : {false, true}) {
        ModelRun run(model, {}, precision);
        run.start();
        run.set_weights(textbook::random_weights(model, 5));
        TensorWatch watch(*run.executor, run.schedules);
        run.step({batch}, [&](Pass pass) {
            if (watched) return run.executor->run_observed(pass, watch);
            run.executor->run(pass);
        });
        CHECK(watch.take().empty() != watched);
        gradients.push_back(run.gradients());
    }
    CHECK(gradients[0] == gradients[1]);
}

TEST_CASE("a row's factor counts in every statistic, and a factor of 0 makes zeros of anything") {
    TensorStats stats;
    stats.add({.amax = 3, .square = 18, .zeros = 1}, 4, -2);
    stats.add({.amax = std::nan(""), .square = std::nan(""), .zeros = 0}, 4, 0);
    CHECK(stats.amax == 6);
    CHECK(stats.square == 72);
    CHECK(stats.zeros == 5);
    CHECK(stats.elements == 8);
    CHECK(stats.rms() == 3);
    CHECK(stats.row_peak == Approx(6 / std::sqrt(18.0)));
    stats.add({.amax = std::nan(""), .square = std::nan(""), .zeros = 0}, 4, 1);
    stats.add({.amax = 9, .square = 81, .zeros = 3}, 4, 1);
    CHECK(std::isnan(stats.amax));
    CHECK(std::isnan(stats.rms()));
}
