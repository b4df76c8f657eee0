#include "src/generate/program/score_output.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/core/standard_streams.h"

namespace coda {

ScoreOutput::ScoreOutput(const GenerateOptions& options) : lines_(options.lines()) {
    if (options.logits) logits_.emplace(*options.logits, FileWriter::Mode::create);
}

void ScoreOutput::score(SlotDecoder& decoder, const GenerationRequest& request, const PreparedPrompt& prompt) {
    require(prompt.tokens.size() >= 2, request.place, ": a text of one token has no loss: nothing follows it");
    const auto keep = [this](std::span<const float> row) {
        if (logits_) logits_->write(std::as_bytes(row));
    };
    const Score made = coda::score(decoder, prompt.tokens, keep);
    if (interrupted()) return;  // of a part of the text it says nothing
    if (lines_) {
        print_bytes(nlohmann::ordered_json{{"id", request.id}, {"loss", made.loss}, {"tokens", made.tokens}}.dump() +
                    "\n");
        return;
    }
    std::array<char, 96> line{};
    std::snprintf(line.data(), line.size(), "loss %.8f over %lld tokens\n", made.loss,
                  static_cast<long long>(made.tokens));
    print_bytes(line.data());
}

void ScoreOutput::finish() {
    if (logits_) logits_->finish();
}

}  // namespace coda
