// Today, as a template may show it.
#include <ctime>
#include <string>

#include "kernels/core/error.h"
#include "src/core/printable.h"
#include "src/tokenize/chat/template.h"

namespace coda {
namespace {

std::tm local_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    return local;
}

/// Noon of the day, with its day of the week and of the year.
std::tm day_of(const std::string& date) {
    std::tm parsed{};
    const char* const end = strptime(date.c_str(), "%d %b %Y", &parsed);
    require(end != nullptr && *end == '\0', "--date: expected a day as \"26 Jul 2024\", found \"", printable(date, ""),
            "\"");
    parsed.tm_hour = 12;
    parsed.tm_isdst = -1;
    require(std::mktime(&parsed) != -1, "--date: there is no such day: ", printable(date, ""));
    return parsed;
}

}  // namespace

std::function<std::string(const std::string&)> chat_clock(const std::string& date) {
    const std::tm time = date.empty() ? local_time() : day_of(date);
    return [time](const std::string& format) {
        if (format.empty()) return std::string();
        require(format.size() <= 1000 && format.find('\0') == std::string::npos,
                "strftime_now(): the format is too long, or has a NUL");
        // The format comes from the template; what it may ask for is limited by the buffer. With a character at its
        // end, a length of 0 says that the text does not fit: the text of "%p" may be empty.
        std::string result(8192, '\0');
        const std::size_t length = std::strftime(result.data(), result.size(), (format + ".").c_str(), &time);
        require(length > 0, "strftime_now(): the text of the format is longer than ", result.size() - 2, " bytes");
        result.resize(length - 1);
        return result;
    };
}

}  // namespace coda
