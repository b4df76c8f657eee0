#include "src/generate/utf8_stream.h"

#include <utility>

#include "src/core/utf8.h"

namespace coda {

std::string Utf8Stream::add(std::string_view bytes) {
    held_ += bytes;
    const std::size_t open = unfinished_utf8(held_);
    std::string rest = held_.substr(held_.size() - open);
    held_.resize(held_.size() - open);
    return replace_invalid_utf8(std::exchange(held_, std::move(rest)));
}

std::string Utf8Stream::finish() { return replace_invalid_utf8(std::exchange(held_, {})); }

}  // namespace coda
