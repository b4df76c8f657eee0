// Validation loss and multiple-choice results of the weights in a session.
#pragma once

#include <string>
#include <vector>

#include "src/core/console.h"
#include "src/engine/session.h"
#include "src/io/log_records.h"
#include "src/train/run_files.h"

namespace coda {

struct ValidationLoss {
    double loss = 0;          // mean nats per token; NaN of no tokens, without a sign
    std::int64_t tokens = 0;  // whose targets count
};

class Evaluator {
  public:
    /// The session runs Pass::evaluate.
    Evaluator(Session& session, EvaluationData data, Console& console);

    ValidationLoss validation();

    /// The result of every file of evaluation.files, in their order; `step` is filled in.
    std::vector<EvaluationRecord> choices(std::int64_t step);

  private:
    Session& session_;
    EvaluationData data_;
    Console& console_;
};

/// "loss 1.25 over 640 tokens", or that no target counted.
std::string loss_text(const ValidationLoss& validation);

/// "hellaswag_val: acc 0.25, acc_norm 0.26 over 10042 examples"
std::string evaluation_line(const EvaluationRecord& record);

}  // namespace coda
