#include "src/train/ranks.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/error.h"
#include "src/core/errors.h"

namespace coda {

namespace {

struct Record {
    std::int64_t number;
    char text[Ranks::kMostText];  // ends with a zero, unless it is full
};

}  // namespace

std::vector<Ranks::Message> Ranks::share(const Message& mine) const {
    if (!team_) return {mine};
    Record record{mine.number, {}};
    std::memcpy(record.text, mine.text.data(), std::min(mine.text.size(), kMostText));
    const std::vector<std::byte> all = team_->share(std::as_bytes(std::span(&record, 1)));
    std::vector<Message> messages;
    for (int rank = 0; rank < count(); ++rank) {
        std::memcpy(&record, all.data() + static_cast<std::size_t>(rank) * sizeof record, sizeof record);
        messages.push_back({record.number, {record.text, strnlen(record.text, kMostText)}});
    }
    return messages;
}

std::string Ranks::first_text(const std::vector<Message>& messages) const {
    const auto found =
        std::find_if(messages.begin(), messages.end(), [](const Message& message) { return !message.text.empty(); });
    if (found == messages.end()) return "";
    return count() == 1 ? found->text : text("rank ", found - messages.begin(), ": ", found->text);
}

void Ranks::require_finite(const std::function<void()>& check) const {
    std::string problem;
    try {
        check();
    } catch (const NonFiniteError& error) {
        problem = error.what();
    }
    problem = first_text(share({.number = 0, .text = problem}));
    if (!problem.empty()) throw NonFiniteError(problem);
}

}  // namespace coda
