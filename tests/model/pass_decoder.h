// A decoder of a model run that makes its tokens by passes.
#pragma once

#include "src/generate/batch_decoder.h"
#include "src/generate/pass_launches.h"
#include "tests/model/harness.h"

namespace coda::test {

/// `run` has started with the passes of generation and outlives the decoder. `run_pass` executes a pass.
inline std::unique_ptr<BatchDecoder> pass_decoder(ModelRun& run, const std::function<void(Pass)>& run_pass) {
    return std::make_unique<BatchDecoder>(*run.executor, run.schedules, run_pass,
                                          std::make_unique<PassLaunches>(*run.executor, run.schedules, run_pass));
}
inline std::unique_ptr<BatchDecoder> pass_decoder(ModelRun& run) {
    return pass_decoder(run, [&run](Pass pass) { run.executor->run(pass); });
}

}  // namespace coda::test
