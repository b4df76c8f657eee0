// A decoder that plays scripts, and a codec whose tokens are known by heart.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/generate/decoder.h"
#include "src/text/codec.h"

namespace coda {

/// A sequence makes the tokens of the script of its last prompt token, then 0s.
class ScriptedDecoder : public Decoder {
  public:
    ScriptedDecoder(int batch, std::map<std::int32_t, std::vector<std::int32_t>> scripts, std::int64_t context = 100)
        : rows_(static_cast<std::size_t>(batch)), scripts_(std::move(scripts)), context_(context) {}

    int batch() const override { return static_cast<int>(rows_.size()); }
    int steps_per_call() const override { return 32; }
    double bytes_read() const override { return read; }
    double peak_bytes_per_s() const override { return 8e12; }
    double read = 0;  // as if by steps
    std::int64_t context() const override { return context_; }
    void start(int row, const SequenceStart& sequence) override {
        starts.push_back(sequence);
        rows_[static_cast<std::size_t>(row)] = Playing{sequence, 0};
    }
    std::vector<SequenceAdvance> advance(int steps) override {
        std::vector<SequenceAdvance> made(rows_.size());
        for (std::size_t row = 0; row < rows_.size(); ++row) {
            for (; made[row].steps < steps && rows_[row]; ++made[row].steps)
                made[row].state = play(row, made[row].tokens);
        }
        return made;
    }
    void stop(int row) override { rows_[static_cast<std::size_t>(row)].reset(); }

    bool idle(int row) const { return !rows_[static_cast<std::size_t>(row)]; }
    std::vector<SequenceStart> starts{};

  private:
    struct Playing {
        SequenceStart start;
        std::size_t made = 0;
    };

    SequenceAdvance::State play(std::size_t row, std::vector<std::int32_t>& tokens) {
        Playing& playing = *rows_[row];
        const std::vector<std::int32_t>& script = scripts_[playing.start.prompt.back()];
        const std::int32_t token = playing.made < script.size() ? script[playing.made] : 0;
        tokens.push_back(token);
        ++playing.made;
        const auto& ends = playing.start.end_tokens;
        const bool ended = std::find(ends.begin(), ends.end(), token) != ends.end();
        const bool full = static_cast<std::int64_t>(playing.made) == playing.start.max_tokens;
        if (ended || full) rows_[row].reset();
        return ended  ? SequenceAdvance::State::ended
               : full ? SequenceAdvance::State::length
                      : SequenceAdvance::State::running;
    }

    std::vector<std::optional<Playing>> rows_;
    std::map<std::int32_t, std::vector<std::int32_t>> scripts_;
    std::int64_t context_;
};

/// Token i is texts[i]; a text in angle brackets is a mark. Text is encoded letter by letter, except that marks are
/// found outside of messages.
class ListCodec : public TextCodec {
  public:
    explicit ListCodec(std::vector<std::string> texts) : texts_(std::move(texts)) {}

    std::vector<std::int32_t> encode(const std::string& text) override { return encode_chat(text, {}); }
    std::vector<std::int32_t> encode_chat(const std::string& text, std::span<const TextRange> messages) override {
        std::vector<std::int32_t> tokens;
        for (std::size_t at = 0; at < text.size();) {
            std::size_t length = 1;
            std::optional<std::int32_t> id = id_of(text.substr(at, 1));
            for (std::size_t i = 0; i < texts_.size(); ++i) {
                const std::size_t size = texts_[i].size();
                const bool spelled = std::any_of(messages.begin(), messages.end(), [&](const TextRange& range) {
                    return range.begin < at + size && range.end > at;
                });
                if (size < 2 || spelled || text.compare(at, size, texts_[i]) != 0) continue;
                id = static_cast<std::int32_t>(i);
                length = size;
            }
            tokens.push_back(id.value_or(0));
            at += length;
        }
        return tokens;
    }
    std::string decode(std::int32_t token) override { return texts_.at(static_cast<std::size_t>(token)); }
    std::optional<std::int32_t> id_of(const std::string& token) const override {
        const auto found = std::find(texts_.begin(), texts_.end(), token);
        if (found == texts_.end()) return std::nullopt;
        return static_cast<std::int32_t>(found - texts_.begin());
    }
    bool is_text(std::int32_t token) const override { return texts_.at(static_cast<std::size_t>(token))[0] != '<'; }

  private:
    std::vector<std::string> texts_;
};

}  // namespace coda
