#include "src/tokenize/chat/origin_text.h"

#include <algorithm>
#include <utility>

namespace coda::jinja {

void OriginText::append(std::string_view bytes, Origin origin) {
    if (bytes.empty()) return;
    bytes_ += bytes;
    if (!runs_.empty() && runs_.back().origin == origin) {
        runs_.back().end = bytes_.size();
    } else {
        runs_.push_back({bytes_.size(), origin});
    }
}

std::size_t OriginText::run_of(std::size_t byte) const {
    const auto found = std::upper_bound(runs_.begin(), runs_.end(), byte,
                                        [](std::size_t value, const Run& run) { return value < run.end; });
    return static_cast<std::size_t>(found - runs_.begin());
}

void OriginText::append(const OriginText& other, std::size_t begin, std::size_t end) {
    for (std::size_t run = begin < end ? other.run_of(begin) : 0; begin < end; ++run) {
        const std::size_t stop = std::min(end, other.runs_[run].end);
        append(std::string_view(other.bytes_).substr(begin, stop - begin), other.runs_[run].origin);
        begin = stop;
    }
}

OriginText OriginText::part(std::size_t begin, std::size_t end) const {
    OriginText result;
    result.append(*this, begin, end);
    return result;
}

void OriginText::mark_generation() {
    std::vector<Run> marked;
    for (Run run : runs_) {
        run.origin.generation = true;
        if (!marked.empty() && marked.back().origin == run.origin) {
            marked.back().end = run.end;
        } else {
            marked.push_back(run);
        }
    }
    runs_ = std::move(marked);
}

}  // namespace coda::jinja
