// The one exception type of this program, and how its messages are put together.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace coda {

/// Values streamed one after the other: text("rows ", 3, " of ", name).
template <class... Values>
std::string text(const Values&... values) {
    std::ostringstream out;
    (out << ... << values);
    return out.str();
}

/// A run-time error. The message says what was wrong, where (file, key, shape) and what to do.
class Error : public std::runtime_error {
  public:
    explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// Throws Error(text(parts...)) unless `condition` holds.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
    if (!condition) throw Error(text(parts...));
}

}  // namespace coda
