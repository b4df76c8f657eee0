#include "src/engine/ranks.h"

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

std::vector<std::string> Ranks::share_text(const std::string& mine) const {
    if (!team_) return {mine};
    std::vector<Message> lengths = share({.number = static_cast<std::int64_t>(mine.size()), .text = {}});
    std::int64_t longest = 0;
    for (const Message& length : lengths) longest = std::max(longest, length.number);
    std::string padded = mine;
    padded.resize(static_cast<std::size_t>(longest));
    const std::vector<std::byte> all = team_->share(std::as_bytes(std::span(padded)));
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
        const auto* begin = reinterpret_cast<const char*>(all.data()) + rank * padded.size();
        texts.emplace_back(begin, static_cast<std::size_t>(lengths[rank].number));
    }
    return texts;
}

std::string Ranks::first_text(const std::vector<Message>& messages) const {
    const auto found =
        std::find_if(messages.begin(), messages.end(), [](const Message& message) { return !message.text.empty(); });
    if (found == messages.end()) return "";
    return count() == 1 ? found->text : text("rank ", found - messages.begin(), ": ", found->text);
}

void Ranks::together(const std::function<void()>& part) const {
    if (!team_) return part();
    Message mine{.number = kExitDone, .text = {}};
    try {
        part();
    } catch (const std::exception& error) {
        mine = {.number = exit_code_of(error), .text = error.what()};
    }
    const std::vector<Message> all = share(mine);
    const auto fails = [](const Message& message) { return message.number != kExitDone; };
    const auto first = std::find_if(all.begin(), all.end(), fails);
    if (first == all.end()) return;
    const auto same = [&](const Message& message) { return message.text == first->text; };
    const std::string said =
        std::all_of(all.begin(), all.end(), same) ? first->text : text("rank ", first - all.begin(), ": ", first->text);
    switch (first->number) {
        case kExitUsage: stop<UsageError>(said);
        case kExitNonFinite: stop<NonFiniteError>(said);
        case kExitInterrupted: stop<InterruptedError>(said);
        default: stop<Error>(said);
    }
}

}  // namespace coda
