#include "src/generate/score.h"

#include <algorithm>
#include <cmath>

#include "src/core/errors.h"
#include "src/core/interrupt.h"

namespace coda {

namespace {

double loss_of(std::span<const float> logits, std::int32_t target) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - largest);
    return std::log(sum) + largest - logits[static_cast<std::size_t>(target)];
}

}  // namespace

Score score(BatchDecoder& decoder, std::span<const std::int32_t> text,
            const std::function<void(std::span<const float>)>& logits) {
    const auto count = static_cast<std::int64_t>(text.size());
    require(count >= 2 && count <= decoder.context(), "the loss of a text of ", count, " tokens: it takes 2 to the ",
            decoder.context(), " of the context");
    for (const std::int32_t token : text) {
        require(token >= 0 && token < decoder.vocab(), "the text has the token ", token,
                ", outside of a vocabulary of ", decoder.vocab());
    }
    decoder.start(0, {.prompt = {text[0]}, .choice = {.temperature = 0}, .max_tokens = count - 1, .end_tokens = {}});
    Score score;
    double sum = 0;
    for (std::size_t i = 1; i < text.size() && !interrupted(); ++i) {
        if (i > 1) decoder.replace_newest(0, text[i - 1]);
        decoder.advance(1);
        const std::vector<float> row = decoder.logits(0);
        if (logits) logits(row);
        sum += loss_of(row, text[i]);
        ++score.tokens;
    }
    decoder.stop(0);
    if (score.tokens > 0) score.loss = sum / static_cast<double>(score.tokens);
    return score;
}

}  // namespace coda
