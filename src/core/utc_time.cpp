#include "src/core/utc_time.h"

#include <array>
#include <ctime>

namespace coda {

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 32> digits{};
    std::strftime(digits.data(), digits.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return digits.data();
}

}  // namespace coda
