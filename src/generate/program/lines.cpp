#include "src/generate/program/lines.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "kernels/core/error.h"
#include "src/core/file_kind.h"
#include "src/core/interrupt.h"

namespace coda {
namespace {

constexpr std::size_t kLongest = std::size_t{64} << 20;

constexpr int kWaitMs = 200;

std::string reason() { return std::generic_category().message(errno); }

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

}  // namespace

LineReader::LineReader(const std::string& path) : name_(path == "-" ? "standard input" : path) {
    if (path == "-") {
        descriptor_ = STDIN_FILENO;
        return;
    }
    std::error_code error;
    const auto type = std::filesystem::status(path, error).type();
    const bool other = type != std::filesystem::file_type::regular && std::filesystem::exists(path, error);
    require(!other, path, ": is ", file_kind(type), "; only a regular file is read, or - for standard input");
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    require(descriptor_ >= 0, "open ", path, ": ", reason());
}

LineReader::~LineReader() {
    if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
}

bool LineReader::readable(bool wait) const {
    pollfd descriptor{.fd = descriptor_, .events = POLLIN, .revents = 0};
    while (!interrupted()) {
        // read() would continue after a signal; one that comes just before poll() is seen after the next wait.
        const int ready = ::poll(&descriptor, 1, wait ? kWaitMs : 0);
        require(ready >= 0 || errno == EINTR, "read ", name_, ": ", reason());
        if (ready > 0 || !wait) return ready > 0;
    }
    return false;
}

void LineReader::read() {
    std::array<char, std::size_t{1} << 16> part;
    const ssize_t count = ::read(descriptor_, part.data(), part.size());
    if (count < 0 && errno == EINTR) return;
    require(count >= 0, "read ", name_, ": ", reason());
    rest_.append(part.data(), static_cast<std::size_t>(count));
    ended_ = count == 0;
}

std::optional<std::string> LineReader::take() {
    const std::size_t end = rest_.find('\n', scanned_);
    scanned_ = rest_.size();
    require(scanned_ <= kLongest || end <= kLongest, name_, ":", number_ + 1, ": the line is over 64 MiB");
    if (end == std::string::npos && (!ended_ || rest_.empty())) return std::nullopt;
    std::string line = rest_.substr(0, end);
    rest_.erase(0, end == std::string::npos ? end : end + 1);
    scanned_ = 0;
    ++number_;
    return line;
}

std::optional<std::string> LineReader::next(bool wait) {
    while (true) {
        if (std::optional<std::string> line = take()) {
            if (is_blank(*line)) continue;
            return line;
        }
        if (ended_ || !readable(wait)) return std::nullopt;
        read();
    }
}

std::string LineReader::rest() {
    while (!ended_ && readable(true)) {
        read();
        require(rest_.size() <= kLongest, name_, ": is over 64 MiB");
    }
    scanned_ = 0;
    return std::exchange(rest_, {});
}

}  // namespace coda
