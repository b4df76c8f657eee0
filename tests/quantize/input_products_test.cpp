// The products of the inputs of a model's matrices, against sums in double over what the ops of a pass read.
#include "src/quantize/input_products.h"

#include <map>

#include "src/io/int4_matrix.h"
#include "src/quantize/quantized_weights.h"
#include "tests/catch.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

/// Adds x xᵀ for x = a rstd, by the layer and the name of the step.
class Reference : public StepObserver {
  public:
    explicit Reference(ModelRun& run) : run_(run) {}
    bool reads_results() const override { return true; }
    void after(Pass pass, std::size_t index, double, double) override {
        const Step& step = run_.schedules[pass][index];
        if (const auto* op = std::get_if<LinearRope>(&step.op)) add(step, op->a, op->rstd);
        if (const auto* op = std::get_if<LinearSwiglu>(&step.op)) add(step, op->a, op->rstd);
        if (const auto* op = std::get_if<LinearResidualRms>(&step.op)) add(step, op->a, {});
    }
    std::map<std::pair<int, std::string>, std::vector<double>> products;

  private:
    void add(const Step& step, const View& a, const View& rstd) {
        const std::vector<double> x = run_.elements(a);
        const std::vector<double> factors = rstd ? run_.elements(rstd) : std::vector<double>();
        std::vector<double>& sums = products[{step.layer, step.name}];
        sums.resize(static_cast<std::size_t>(a.cols * a.cols));
        for (std::int64_t row = 0; row < a.rows; ++row)
            for (std::int64_t i = 0; i < a.cols; ++i)
                for (std::int64_t j = 0; j < a.cols; ++j) {
                    const double factor = factors.empty() ? 1 : factors[static_cast<std::size_t>(row)];
                    sums[static_cast<std::size_t>(i * a.cols + j)] += factor * factor *
                                                                      x[static_cast<std::size_t>(row * a.cols + i)] *
                                                                      x[static_cast<std::size_t>(row * a.cols + j)];
                }
    }

    ModelRun& run_;
};

}  // namespace

TEST_CASE("products of inputs include the weight of the norm before the matrix") {
    ModelConfig model = tiny_int4_model();
    model.intermediate_size = GENERATE(256, 192);  // of the second, down is not rounded and has no products
    ModelRun run(model, {.batch = 2, .seq_len = 6, .passes = passes_of(Mode::evaluate)}, kFloat32);
    run.start();
    const textbook::Weights weights = textbook::random_weights(model, 3);
    run.set_weights(weights);
    std::vector<float> flat(static_cast<std::size_t>(run.layout.count));
    for (const HfTensor& tensor : run.layout.tensors)
        for (std::int64_t row = 0; row < tensor.rows; ++row)
            std::copy_n(weights.at(tensor.name).begin() + row * tensor.cols, tensor.cols,
                        flat.begin() + tensor.row_offset(row));
    const HostWeights source(run.layout, flat);
    InputProducts products(*run.executor, run.schedules, run.layout, source);
    Reference reference(run);
    for (const int seed : {1, 2}) {
        const textbook::Batch batch = random_batch(model, 2, 6, static_cast<std::uint64_t>(seed));
        run.evaluate(batch);  // feeds
        run.executor->run_observed(Pass::evaluate, products);
        run.executor->run_observed(Pass::evaluate, reference);
    }
    for (std::size_t m = 0; m < run.layout.matrices.size(); ++m) {
        const WeightMatrix& matrix = run.layout.matrices[m];
        const std::span<const float> found = products.of(m);
        CAPTURE(matrix.name, matrix.layer);
        const std::int64_t n = matrix.place.cols;
        CHECK(found.empty() == (matrix.layer < 0 || n == 192));
        if (found.empty()) continue;
        const std::vector<double>& sums = reference.products.at({matrix.layer, matrix.name});
        const auto gamma = [&](std::int64_t i) {
            return matrix.norm ? static_cast<double>(flat[static_cast<std::size_t>(matrix.norm->weight.offset + i)])
                               : 1.0;
        };
        double most = 0, largest = 0;
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = i; j < n; ++j) {
                const double expected = sums[static_cast<std::size_t>(i * n + j)] * gamma(i) * gamma(j);
                most = std::max(most,
                                std::abs(expected - static_cast<double>(found[static_cast<std::size_t>(i * n + j)])));
                largest = std::max(largest, std::abs(expected));
            }
        CHECK(largest > 0);
        CHECK(most < 1e-5 * largest);  // 24 sums in fp32
    }
}

TEST_CASE(
    "weights that are rounded keep everything but the layers' matrices of whole groups, and read the same in any "
    "order") {
    ModelConfig model = tiny_int4_model();
    model.intermediate_size = GENERATE(256, 192);  // of the second, down has no whole groups
    const ParameterLayout layout = parameter_layout(model);
    std::vector<float> flat(static_cast<std::size_t>(layout.count));
    for (std::size_t i = 0; i < flat.size(); ++i) flat[i] = std::sin(0.37F * static_cast<float>(i));
    const HostWeights source(layout, flat);
    int layers = 0;
    const QuantizedWeights rounded(layout, source, nullptr, [&](const std::string&) { ++layers; });
    CHECK(layers == model.num_hidden_layers);
    std::vector<float> all(flat.size());
    rounded.read(0, all);
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        const HfTensor& tensor = layout.tensors[t];
        const bool is_rounded =
            tensor.is_matrix() && tensor.name.find("_proj") != std::string::npos && tensor.cols != 192;
        CAPTURE(tensor.name);
        REQUIRE(rounded.is_int4(t) == is_rounded);
        std::vector<float> row(static_cast<std::size_t>(tensor.cols));
        for (std::int64_t r = 0; r < tensor.rows; ++r) {
            rounded.read_row(t, r, row);
            REQUIRE(std::equal(row.begin(), row.end(), all.begin() + tensor.row_offset(r)));
            const auto from = flat.begin() + tensor.row_offset(r);
            if (!is_rounded) REQUIRE(std::equal(row.begin(), row.end(), from));
            if (!is_rounded) continue;
            std::vector<std::uint32_t> words(row.size() / 8), expected(words.size());
            std::vector<Bf16> scales(row.size() / 128), of(scales.size());
            rounded.read_int4_row(t, r, words, scales);
            quantize_row({from, from + tensor.cols}, expected, of);
            REQUIRE(words == expected);
        }
    }
    std::vector<float> part(1000);
    rounded.read(777, part);
    CHECK(std::equal(part.begin(), part.end(), all.begin() + 777));
}
