#include "src/generate/text_sampler.h"

#include "src/core/errors.h"
#include "src/generate/choose_launches.h"

namespace coda {

namespace {

BatchDecoder decoder_of(Session& session, const DecoderOptions& options) {
    const auto run = [&session](Pass pass) { session.run(pass); };
    return {session.executor(), session.schedules(), run,
            choose_launches(session.executor(), session.schedules(), run, options, session.console())};
}

}  // namespace

TextSampler::TextSampler(Session& session, const DecoderOptions& options) : decoder_(decoder_of(session, options)) {}

void TextSampler::sample(const std::vector<std::int32_t>& prompt, const SamplingOptions& options,
                         const std::function<void(std::int32_t)>& token) {
    std::int64_t made = 0;
    try {
        decoder_.start(0, {.prompt = prompt,
                           .choice = options.choice,
                           .max_tokens = options.tokens,
                           .end_tokens = options.end_tokens});
        for (auto state = SequenceAdvance::State::running; state == SequenceAdvance::State::running;) {
            const SequenceAdvance advance = decoder_.advance(decoder_.steps_per_call()).front();
            state = advance.state;
            made += static_cast<std::int64_t>(advance.tokens.size());
            for (const std::int32_t next : advance.tokens) token(next);
        }
    } catch (const NonFiniteError&) {
        throw NonFiniteError(text("the logits of token ", made + 1, " of the sample are not finite"));
    }
}

}  // namespace coda
