#include "src/generate/stop_texts.h"

#include <algorithm>
#include <utility>

#include "kernels/core/error.h"

namespace coda {

StopTexts::StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {
    for (const std::string& stop : texts_) require(!stop.empty(), "a stop text is empty: it would end every text");
}

std::size_t StopTexts::begun() const {
    std::size_t longest = 0;
    for (const std::string& stop : texts_) {
        for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
            if (held_.ends_with(std::string_view(stop).substr(0, n))) longest = n;
        }
    }
    return longest;
}

std::string StopTexts::add(std::string_view piece) {
    if (stopped_) return {};
    if (texts_.empty()) return std::string(piece);
    for (const char byte : piece) {
        held_ += byte;
        std::size_t complete = 0;
        for (const std::string& stop : texts_) {
            if (held_.ends_with(stop)) complete = std::max(complete, stop.size());
        }
        if (complete == 0) continue;
        stopped_ = true;
        held_.resize(held_.size() - complete);
        return std::exchange(held_, {});
    }
    std::string rest = held_.substr(held_.size() - begun());
    held_.resize(held_.size() - rest.size());
    return std::exchange(held_, std::move(rest));
}

std::string StopTexts::finish() { return std::exchange(held_, {}); }

}  // namespace coda
