// Text whose bytes know where they are from: the template, or a message of the conversation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coda::jinja {

struct Origin {
    std::int32_t message = -1;  // the index of the message, -1 for the template
    bool generation = false;    // within {% generation %}
    bool operator==(const Origin&) const = default;
};

/// Bytes (valid UTF-8 as long as it is cut between characters) and the runs of equal origin that cover them.
class OriginText {
  public:
    struct Run {
        std::size_t end = 0;
        Origin origin{};
    };

    OriginText() = default;
    explicit OriginText(std::string_view bytes, Origin origin = {}) { append(bytes, origin); }

    const std::string& bytes() const { return bytes_; }
    std::size_t size() const { return bytes_.size(); }
    bool empty() const { return bytes_.empty(); }
    const std::vector<Run>& runs() const { return runs_; }

    /// What it holds in memory, to be counted against a limit.
    std::size_t cost() const { return bytes_.size() + runs_.size() * sizeof(Run); }

    void append(std::string_view bytes, Origin origin);
    void append(const OriginText& other) { append(other, 0, other.size()); }
    void append(const OriginText& other, std::size_t begin, std::size_t end);

    /// Bytes [begin, end).
    OriginText part(std::size_t begin, std::size_t end) const;

    Origin origin_of(std::size_t byte) const { return runs_[run_of(byte)].origin; }

    /// Every byte is within {% generation %} from now on.
    void mark_generation();

  private:
    std::size_t run_of(std::size_t byte) const;

    std::string bytes_;
    std::vector<Run> runs_;
};

}  // namespace coda::jinja
