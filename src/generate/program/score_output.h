// What --score writes: the loss of each text, and its logits to a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/generate/program/options.h"
#include "src/generate/program/prompts.h"
#include "src/generate/score.h"
#include "src/io/files.h"

namespace coda {

class ScoreOutput {
  public:
    /// Creates the file of --logits, where it is asked for. Throws Error where it exists or cannot be written.
    explicit ScoreOutput(const GenerateOptions& options);

    /// Scores a request's tokens, at least two, and prints them: a line of JSON {"id", "loss", "tokens"} where answers
    /// are lines. After an interrupt it prints nothing, and the file ends with the text before.
    void score(BatchDecoder& decoder, const GenerationRequest& request, const PreparedPrompt& prompt);

    /// The file is complete.
    void finish();

  private:
    bool lines_;
    std::optional<FileWriter> logits_;
    std::int64_t bytes_ = 0;  // of it, of the texts so far
};

}  // namespace coda
