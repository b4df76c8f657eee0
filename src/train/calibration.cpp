#include "src/train/calibration.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/integers.h"
#include "src/io/run_log.h"
#include "src/quantize/quantized_weights.h"
#include "src/train/evaluator.h"

namespace coda {

namespace {

/// The products of the inputs of the layers' matrices.
void observe(Session& session, const Loader& data, std::int64_t sequences, InputProducts& products, Console& console) {
    const std::int64_t together = session.config().training.micro_batch_size;
    for (std::int64_t first = 0; first < sequences; first += together) {
        const TokenBatch batch = data.batch(first, together);
        session.set_alpha(batch.valid);
        session.feed(batch);
        session.executor().run_observed(Pass::evaluate, products);
        console.line(text("calibration: ", first + together, " of ", sequences, " sequences"));
    }
}

}  // namespace

std::unique_ptr<MasterWeights> calibrated(Session& session, TrainingData data, std::int64_t sequences,
                                          const ParameterLayout& layout, const MasterWeights& weights,
                                          Console& console) {
    const std::int64_t together = session.config().training.micro_batch_size, all = data.train->sequences();
    require(sequences <= all, "--calibrate: ", sequences, " sequences, and data.train has ", all);
    sequences = round_up(sequences, together);
    Evaluator evaluator(session, std::move(data.evaluation), console);
    const auto say = [&](const char* whose) {
        const ValidationLoss validation = evaluator.validation();
        require(validation.tokens > 0, "--calibrate: the validation data has no counted target");
        console.line(text("validation ", loss_text(validation), ", perplexity ", json_number(std::exp(validation.loss)),
                          ": ", whose));
    };
    const auto said = [&](const std::string& line) { console.line(line); };
    say("as they are");
    {
        const QuantizedWeights nearest(layout, weights, nullptr, [](const std::string&) {});
        session.set_weights(nearest);
        say("rounded to nearest");
        session.set_weights(weights);
    }
    InputProducts products(session.executor(), session.schedules(), layout, weights);
    observe(session, *data.train, sequences, products, console);
    auto made = std::make_unique<QuantizedWeights>(layout, weights, &products, said);
    session.set_weights(*made);
    say("by GPTQ");
    return made;
}

}  // namespace coda
