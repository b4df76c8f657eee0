// Launches of many steps without the kernel that has them: passes in its place, or a script; and a model for them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "src/generate/batch_decoder.h"
#include "tests/model/harness.h"
#include "tests/model/sequences.h"

namespace coda::test {

/// As a kernel has it: no host between the steps of a launch, and a row that does not run makes -1.
class PassesPerLaunch : public DecodeLaunches {
  public:
    PassesPerLaunch(ModelRun& run, int most) : run_(run), most_(most) {}

    int most_steps() const override { return most_; }
    DecodedSteps run(int steps, const std::function<bool()>& cancelled) override {
        launches.push_back(steps);
        const SequenceRows& rows = run_.schedules.host.sequences;
        DecodedSteps made;
        bool stop = false;
        for (int step = 0; step < steps; ++step) {
            const Tokens before = read(rows.state);
            if (!stop) run_.executor->run(Pass::decode);
            const Tokens tokens = read(rows.token);
            made.states = read(rows.state);
            for (std::size_t row = 0; row < tokens.size(); ++row) {
                const bool ran = before[row] == static_cast<int>(RowState::running) && !stop;
                const bool failed = made.states[row] == static_cast<int>(RowState::failed);
                made.tokens.push_back(ran && !failed ? tokens[row] : -1);
            }
            stop = stop || cancelled();
        }
        return made;
    }
    std::vector<int> launches{};

  private:
    Tokens read(const View& view) {
        Tokens values(static_cast<std::size_t>(view.cols));
        run_.executor->download(view, values.data());
        return values;
    }

    ModelRun& run_;
    int most_;
};

/// Says what it was given to say.
class ScriptedLaunches : public DecodeLaunches {
  public:
    explicit ScriptedLaunches(std::vector<DecodedSteps> script) : script_(std::move(script)) {}
    int most_steps() const override { return 4; }
    DecodedSteps run(int, const std::function<bool()>&) override { return script_.at(next_++); }

  private:
    std::vector<DecodedSteps> script_;
    std::size_t next_ = 0;
};

struct Model {
    ModelRun run;
    explicit Model(const GenerationShape& shape, PassSet more = {}, const ModelConfig& model = tiny_model())
        : run(model, {.batch = 1, .seq_len = 12, .passes = passes_of(Mode::generate) | more, .generation = shape},
              kFloat32) {
        run.start();
        run.set_weights(textbook::random_weights(run.model, 7));
    }
    std::function<void(Pass)> pass() {
        return [this](Pass pass) { run.executor->run(pass); };
    }
    BatchDecoder decoder(std::unique_ptr<DecodeLaunches> launches) {
        return {*run.executor, run.schedules, pass(), std::move(launches)};
    }
};

}  // namespace coda::test
