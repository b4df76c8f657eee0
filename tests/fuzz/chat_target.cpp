#include <string_view>
#include <vector>

#include "src/core/utf8.h"
#include "src/tokenize/chat/template.h"
#include "tests/fuzz/targets.h"

namespace coda::fuzz {

void chat_template(std::span<const std::byte> input) {
    // Small limits, so that a loop takes no time of which others can use more.
    const ChatLimits limits{.nodes = 100'000, .output = 1 << 16};
    const ChatTemplate jinja(std::string_view(reinterpret_cast<const char*>(input.data()), input.size()), "input",
                             limits);
    const std::vector<ChatMessage> messages{{"system", " <|a|>\xC3\xA9 "}, {"user", "1, 2"}, {"assistant", "b\n"}};
    const Rendered rendered = jinja.render(
        messages, {.tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, .now = chat_clock("05 Mar 2027")});
    promise(valid_utf8(rendered.text) == rendered.text.size(), "a rendered conversation is not UTF-8");
    std::size_t end = 0;
    for (const RenderedRun& run : rendered.runs) {
        promise(run.begin == end && run.end > run.begin, "runs leave a hole, overlap or are empty");
        promise(run.message >= -1 && run.message < 3, "a run is of no message");
        promise(run.message < 0 || run.role == messages[static_cast<std::size_t>(run.message)].role, "another role");
        promise(!run.generation || rendered.has_generation, "a run is in a block that is not there");
        end = run.end;
    }
    promise(end == rendered.text.size(), "runs do not cover the text");
}

}  // namespace coda::fuzz
