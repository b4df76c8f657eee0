#include "src/generate/text_sampler.h"

#include <algorithm>

#include "src/core/errors.h"
#include "src/generate/choose_launches.h"

namespace coda {

namespace {

SlotDecoder decoder_of(Session& session, DecoderOptions options) {
    if (session.timing() && options.choice == DecoderChoice::automatic) options.choice = DecoderChoice::passes;
    const auto run = [&session](Pass pass) { session.run(pass); };
    return {session.executor(), session.schedules(), run,
            choose_launches(session.executor(), session.schedules(), run, options, session.console())};
}

}  // namespace

TextSampler::TextSampler(Session& session, DecoderOptions options)
    : separator_(separator_of(session.config())),
      decoder_(decoder_of(session, options)),
      sampler_(session.executor(), session.host(), session.tokens(), session.config().model.vocab_size, separator_,
               [&session] { session.run(Pass::sample); }) {}

bool TextSampler::fits(const std::vector<std::int32_t>& prompt) const {
    if (prompt.empty() || static_cast<std::int64_t>(prompt.size()) >= decoder_.context()) return false;
    return separator_ < 0 || std::find(prompt.begin() + 1, prompt.end(), separator_) == prompt.end();
}

void TextSampler::sample(std::vector<std::int32_t> prompt, const SamplingOptions& options,
                         const std::function<void(std::int32_t)>& token) {
    if (!fits(prompt)) return sampler_.sample(std::move(prompt), options, token);
    std::vector<std::int32_t> text_so_far = prompt;
    SequenceStart sequence{.prompt = std::move(prompt),
                           .choice = options.choice,
                           .max_tokens = options.tokens,
                           .end_tokens = options.end_tokens};
    if (separator_ >= 0) sequence.end_tokens.push_back(separator_);
    std::int64_t made = 0;
    try {
        decoder_.start(0, sequence);
        for (auto state = SequenceAdvance::State::running; state == SequenceAdvance::State::running;) {
            const SequenceAdvance advance = decoder_.advance(decoder_.steps_per_call()).front();
            state = advance.state;
            for (const std::int32_t next : advance.tokens) {
                text_so_far.push_back(next);
                ++made;
                token(next);
            }
        }
    } catch (const NonFiniteError&) {
        throw NonFiniteError(text("the logits of token ", made + 1, " of the sample are not finite"));
    }
    const bool ended =
        std::find(options.end_tokens.begin(), options.end_tokens.end(), text_so_far.back()) != options.end_tokens.end();
    if (made == options.tokens || ended) return;
    SamplingOptions rest = options;
    rest.tokens -= made;
    sampler_.sample(std::move(text_so_far), rest, token);
}

}  // namespace coda
