// --tensor-stats on the GPU: what its kernel says of the tensors of a step, compared with the same tensors on the host.
#include "src/engine/tensor_stats.h"

#include "src/engine/hopper_executor.h"
#include "tests/hopper/harness.h"
#include "tests/hopper/small_model.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

/// Copies every tensor and sums its rows on the host.
class HostWatch : public StepObserver {
  public:
    HostWatch(ModelRun& run, TensorWatch& watch) : run_(run), watch_(watch) {}
    bool reads_results() const override { return true; }
    void after(Pass pass, std::size_t index, double start_us, double ms) override {
        watch_.after(pass, index, start_us, ms);
        const Step& step = run_.schedules[pass][index];
        for (const GemmTensor& tensor : gemm_tensors(step, run_.schedules.weights)) {
            const std::vector<double> values = run_.elements(tensor.view), times = optional(tensor.scalars.times),
                                      over = optional(tensor.scalars.over), factor = optional(tensor.scalars.factor);
            TensorStats& stats = all[{step.layer, tensor.name}];
            for (std::int64_t r = 0; r < tensor.view.rows; ++r) {
                RowStats row;
                for (std::int64_t c = 0; c < tensor.view.cols; ++c) {
                    const double value = values[static_cast<std::size_t>(r * tensor.view.cols + c)];
                    row.amax = std::max(row.amax, std::abs(value));
                    row.square += value * value;
                    row.zeros += value == 0;
                }
                const auto i = static_cast<std::size_t>(r);
                stats.add(
                    row, tensor.view.cols,
                    (factor.empty() ? 1 : factor[0]) * (times.empty() ? 1 : times[i]) / (over.empty() ? 1 : over[i]));
            }
        }
    }
    std::map<std::pair<int, std::string>, TensorStats> all;

  private:
    std::vector<double> optional(const View& view) { return view ? run_.elements(view) : std::vector<double>{}; }

    ModelRun& run_;
    TensorWatch& watch_;
};

}  // namespace

TEST_CASE("statistics of a step's tensors on the GPU follow from their elements, and its bits stay", "[gpu]") {
    if (!has_hopper()) return;
    const ModelConfig model = small_model(64, false);
    const textbook::Weights weights = textbook::random_weights(model, 3);
    const textbook::Batch batch = random_batch(model, 2, 100, 1);
    std::vector<textbook::Weights> gradients;
    for (const bool watched : {false, true}) {
        ModelRun run(model, {.batch = 2, .seq_len = 100, .chunks = 3}, kMixedBf16);
        run.start(make_hopper_executor);
        run.set_weights(weights);
        TensorWatch watch(*run.executor, run.schedules);
        HostWatch host(run, watch);
        run.step({batch}, [&](Pass pass) {
            if (watched) return run.executor->run_observed(pass, host);
            run.executor->run(pass);
        });
        gradients.push_back(run.gradients());
        if (!watched) continue;
        const std::vector<TensorRecord> records = watch.take();
        REQUIRE(records.size() == static_cast<std::size_t>(3 * (4 * model.num_hidden_layers + 1)));
        for (const TensorRecord& record : records) {
            INFO("layer " << record.layer << " " << record.name);
            const TensorStats& expected = host.all.at({record.layer, record.name});
            CHECK(record.stats.elements == expected.elements);
            CHECK(record.stats.zeros == expected.zeros);
            CHECK(record.stats.amax == expected.amax);
            // Sums of at most 1024 columns and 1009 rows in other orders.
            CHECK(record.stats.rms() == Approx(expected.rms()).epsilon(1e-12));
            CHECK(record.stats.row_peak == Approx(expected.row_peak).epsilon(1e-12));
        }
    }
    CHECK(gradients[0] == gradients[1]);
}
