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

void ScoreOutput::score(BatchDecoder& decoder, const GenerationRequest& request, const PreparedPrompt& prompt) {
    std::int64_t written = 0;
    const auto keep = [&](std::span<const float> row) {
        if (logits_) logits_->write(std::as_bytes(row));
        written += static_cast<std::int64_t>(row.size_bytes());
    };
    const Score made = coda::score(decoder, prompt.tokens, keep);
    if (interrupted()) {  // of a part of the text it says nothing
        if (logits_) logits_->truncate(bytes_);
        return;
    }
    bytes_ += written;
    if (lines_) {
        const nlohmann::ordered_json line{{"id", request.id}, {"loss", made.loss}, {"tokens", made.tokens}};
        print_bytes(line.dump(-1, ' ', true) + "\n");  // ASCII, as the answers
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
