#include "src/tokenize/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "kernels/core/error.h"
#include "src/core/console.h"

namespace coda {
namespace {

constexpr int kBarWidth = 24;

}  // namespace

Progress::Progress(std::int64_t total_bytes) : total_(total_bytes), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void Progress::update(std::int64_t bytes, std::int64_t tokens) {
    const auto now = Clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    std::string line = "\r";
    if (total_ > 0) {
        const double part = std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total_));
        const auto filled = static_cast<std::size_t>(part * kBarWidth);
        line += text("[", std::string(filled, '='), std::string(kBarWidth - filled, ' '), "] ",
                     static_cast<int>(100 * part), "% of ", bytes_text(static_cast<double>(total_)), " | eta ",
                     part > 0 ? duration_text(seconds / part - seconds) : "?", " | ");
    }
    line += text(bytes_text(static_cast<double>(bytes) / seconds), "/s | ", count_text(static_cast<double>(tokens)),
                 " tokens\x1b[K");
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
    drawn_ = true;
}

}  // namespace coda
