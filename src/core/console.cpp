#include "src/core/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <system_error>

#include "kernels/core/error.h"
#include "src/core/printable.h"

namespace coda {

namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
    char buffer[256];
    const int length = std::snprintf(buffer, sizeof buffer, pattern, values...);
    return std::string(buffer, static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof buffer) - 1)));
}

}  // namespace

std::string duration_text(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0) return "?";
    const auto s = static_cast<long long>(seconds + 0.5);
    if (s < 60) return format("%llds", s);
    if (s < 3600) return format("%lldm%02llds", s / 60, s % 60);
    if (s < 86400) return format("%lldh%02lldm", s / 3600, s / 60 % 60);
    return format("%lldd%02lldh", s / 86400, s / 3600 % 24);
}

std::string count_text(double value) {
    constexpr const char* kUnits[] = {"", "k", "M", "B", "T"};
    std::size_t unit = 0;
    while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
        value /= 1000;
        ++unit;
    }
    return format(unit == 0 ? "%.0f%s" : "%.3g%s", value, kUnits[unit]);
}

std::string bytes_text(double bytes) {
    constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t unit = 0;
    while (bytes >= 1023.5 && unit + 1 < std::size(kUnits)) {
        bytes /= 1024;
        ++unit;
    }
    return format(unit == 0 ? "%.0f %s" : "%.2f %s", bytes, kUnits[unit]);
}

std::string step_line(const StepReport& r) {
    const int width = static_cast<int>(std::to_string(r.steps).size());
    return format("step %*lld/%lld | loss %.4f | norm %.3f | lr %.2e | %.4g ms | %s tok/s | eta %s", width,
                  static_cast<long long>(r.step), static_cast<long long>(r.steps), r.loss, r.grad_norm, r.lr, r.ms,
                  count_text(r.tokens_per_s).c_str(), duration_text(r.eta_s).c_str());
}

Console::Console(std::FILE* out, Loss loss, std::FILE* err)
    : out_(out), loss_(loss), err_(err), terminal_(isatty(fileno(out)) == 1) {}

Console::~Console() {
    erase_bar();
    if (lost_ == 0) return;
    std::fprintf(err_, "coda_train: note: lines that did not reach standard output: %lld; log.jsonl has every step\n",
                 static_cast<long long>(lost_));
}

void Console::line(const std::string& text) {
    erase_bar();
    write_line(printable(text) + "\n");
}

void Console::write_line(const std::string& line) {
    errno = 0;
    if (std::fwrite(line.data(), 1, line.size(), out_) == line.size() && std::fflush(out_) == 0) return;
    const std::string why = text("standard output: ", std::generic_category().message(errno));
    std::clearerr(out_);  // there may be room for the next one
    if (loss_ == Loss::thrown) throw Error(why);
    if (lost_++ == 0) std::fprintf(err_, "coda_train: %s; the run continues, with its log\n", why.c_str());
}

void Console::step(const StepReport& report) {
    line(step_line(report));
    if (terminal_) draw_bar(report);
}

void Console::erase_bar() {
    if (!bar_) return;
    std::fputs("\r\x1b[K", out_);
    std::fflush(out_);
    bar_ = false;
}

void Console::draw_bar(const StepReport& report) {
    winsize size{};
    const int columns = ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    const std::string tail =
        format(" %3.0f%% eta %s",
               100.0 * static_cast<double>(report.step) / static_cast<double>(std::max<std::int64_t>(1, report.steps)),
               duration_text(report.eta_s).c_str());
    const int room = columns - static_cast<int>(tail.size()) - 3;
    if (room < 10) return;
    const auto filled = static_cast<std::size_t>(static_cast<double>(room) * static_cast<double>(report.step) /
                                                 static_cast<double>(std::max<std::int64_t>(1, report.steps)));
    const std::string bar = std::string(filled, '=') + std::string(static_cast<std::size_t>(room) - filled, ' ');
    std::fprintf(out_, "[%s]%s", bar.c_str(), tail.c_str());
    std::fflush(out_);
    bar_ = true;
}

}  // namespace coda
