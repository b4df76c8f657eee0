#include "src/tokenize/masked_tokens.h"

#include <algorithm>

#include "src/io/token_mask.h"

namespace coda {

namespace {

/// The bytes of all messages.
std::vector<TextRange> of_messages(const Rendered& rendered) {
    std::vector<TextRange> ranges;
    for (const RenderedRun& run : rendered.runs) {
        if (run.message >= 0) ranges.push_back({run.begin, run.end});
    }
    return ranges;
}

/// What counts: stretches within {% generation %}, or messages.
std::vector<TextRange> counted(const Rendered& rendered, const std::vector<bool>& counts, TrainOn train_on) {
    if (train_on == TrainOn::all) return {{0, rendered.text.size()}};
    struct Stretch {
        TextRange range;
        std::int32_t message = -1;
        bool counts = true;
    };
    std::vector<Stretch> stretches;
    for (const RenderedRun& run : rendered.runs) {
        const bool is_message = run.message >= 0;
        const bool may_count = is_message && counts[static_cast<std::size_t>(run.message)];
        if (rendered.has_generation ? !run.generation : !may_count) continue;
        const bool continues = !stretches.empty() && stretches.back().range.end == run.begin &&
                               (rendered.has_generation || stretches.back().message == run.message);
        if (!continues) stretches.push_back({{run.begin, run.begin}, run.message, true});
        stretches.back().range.end = run.end;
        if (is_message) stretches.back().counts = may_count;
    }
    std::erase_if(stretches, [](const Stretch& each) { return !each.counts; });
    if (train_on == TrainOn::last && !stretches.empty()) {
        // A template may divide an answer, with its own text between the parts.
        const std::int32_t last = stretches.back().message;
        const std::size_t before = stretches.size() - 1;
        std::erase_if(stretches, [&, i = std::size_t{0}](const Stretch& each) mutable {
            return i++ < before && (rendered.has_generation || each.message != last);
        });
    }
    std::vector<TextRange> ranges;
    for (const Stretch& each : stretches) ranges.push_back(each.range);
    return ranges;
}

}  // namespace

MaskedTokens MaskedEncoder::encode(const Rendered& rendered, const std::vector<bool>& counts, TrainOn train_on) {
    MaskedTokens out;
    std::vector<std::uint8_t> touched;
    encoder_.encode(rendered.text, {.plain = of_messages(rendered), .counted = counted(rendered, counts, train_on)},
                    out.tokens, &touched);
    const bool ends_count = !rendered.has_generation && train_on != TrainOn::all;
    bool open = false;  // a turn that counts has not ended
    for (std::size_t i = 0; i < touched.size(); ++i) {
        const bool is_counted = (touched[i] & kTouchesCounted) != 0, is_message = (touched[i] & kTouchesPlain) != 0;
        const bool ends = ends_count && open && !is_counted && tokenizer_.is_special(out.tokens[i]);
        open = is_counted || (open && !ends && !is_message);
        out.mask.push_back(is_counted || ends ? kMaskTarget : 0);
    }
    if (!out.mask.empty()) out.mask.front() |= kMaskBegin;
    return out;
}

}  // namespace coda
