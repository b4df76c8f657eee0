// Conversations to rows with masks, packed.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/io/text_marks.h"
#include "src/io/token_mask.h"
#include "src/tokenize/chat/chat_files.h"
#include "src/tokenize/conversation.h"
#include "src/tokenize/given_text.h"
#include "src/tokenize/inputs.h"
#include "src/tokenize/masked_tokens.h"
#include "src/tokenize/ordered_workers.h"
#include "src/tokenize/packing.h"
#include "src/tokenize/progress.h"
#include "src/tokenize/run.h"
#include "src/tokenize/shard_writer.h"

namespace coda {

namespace {

/// Conversations of some lines.
struct Part {
    std::vector<MaskedTokens> train, validation;
    std::int64_t truncated = 0;       // conversations longer than a row
    std::int64_t without_target = 0;  // conversations of which no token counts; they are in neither list
    std::int64_t replaced = 0;        // places that were no UTF-8
};

/// What all lines share.
struct Setting {
    const Tokenizer& tokenizer;
    const TokenizeOptions& options;
    std::optional<ChatForm> chat{};
    std::string no_chat{};           // why there is none
    std::vector<std::uint32_t> bos;  // before a text
    std::uint32_t end = 0;           // after a text, and in what is left of a row
};

Rendered rendered(const Conversation& conversation, const Setting& setting, const std::string& place) {
    if (conversation.is_chat()) {
        require(setting.chat.has_value(), place, ": ", setting.no_chat);
        try {
            return setting.chat->jinja.render(conversation.messages, setting.chat->context);
        } catch (const InterruptedError&) {
            throw;
        } catch (const Error& error) {
            throw Error(text(place, ": ", error.what()));
        }
    }
    // A special token that is spelled out in a text becomes that token, as in documents.
    const std::size_t begin = conversation.prompt.size(), end = begin + conversation.text.size();
    return {.text = conversation.prompt + conversation.text,
            .runs = {{.begin = 0, .end = begin}, {.begin = begin, .end = end, .generation = true}},
            .has_generation = true};
}

MaskedTokens encode(const Conversation& conversation, const Setting& setting, MaskedEncoder& encoder,
                    const std::string& place) {
    std::vector<bool> counts;
    for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
        counts.push_back(i >= conversation.prompt_messages && conversation.messages[i].role == "assistant");
    }
    MaskedTokens tokens = encoder.encode(rendered(conversation, setting, place), counts, setting.options.train_on);
    if (conversation.is_chat() || tokens.tokens.empty()) return tokens;
    // A text may spell them already.
    const auto& bos = setting.bos;
    const bool begun = tokens.tokens.size() >= bos.size() && std::equal(bos.begin(), bos.end(), tokens.tokens.begin());
    if (!begun) {
        tokens.mask.front() &= static_cast<std::uint8_t>(~kMaskBegin);
        tokens.tokens.insert(tokens.tokens.begin(), bos.begin(), bos.end());
        tokens.mask.insert(tokens.mask.begin(), bos.size(), 0);
        tokens.mask.front() |= kMaskBegin;
    }
    if (tokens.tokens.back() == setting.end) return tokens;
    tokens.tokens.push_back(setting.end);
    tokens.mask.push_back(kMaskTarget);
    return tokens;
}

bool counts_none(const MaskedTokens& tokens) {
    return std::none_of(tokens.mask.begin(), tokens.mask.end(), counts_as_target);
}

Part encode_lines(const Segment& segment, const Setting& setting, MaskedEncoder& encoder) {
    Part part;
    const auto row = static_cast<std::size_t>(setting.options.seq_len);
    for_each_line(segment, [&](std::string_view content, const std::string& place, std::int64_t document) {
        const bool validation = is_validation(document, setting.options.segments.val_fraction);
        const Conversation conversation =
            from_json_line(content, place, setting.options.documents.invalid_utf8, part.replaced,
                           [&](const nlohmann::json& object) { return conversation_of(object, place); });
        MaskedTokens tokens = encode(conversation, setting, encoder, place);
        const bool too_long = tokens.tokens.size() > row;
        if (too_long) {
            tokens.tokens.resize(row);
            tokens.mask.resize(row);
        }
        if (counts_none(tokens)) {
            ++part.without_target;
        } else {
            part.truncated += too_long ? 1 : 0;
            (validation ? part.validation : part.train).push_back(std::move(tokens));
        }
    });
    return part;
}

/// The end token: --eos, else what ends a document, else eos_token, else what begins a document.
std::uint32_t end_token(const Tokenizer& tokenizer, const TokenizeOptions& options, const TokenizerFiles& files,
                        const DocumentMarks& automatic) {
    std::vector<std::int32_t> known = automatic.end.tokens;
    if (known.empty() && files.eos()) known = {*files.eos()};
    if (known.empty()) known = automatic.begin.tokens;
    const std::vector<std::uint32_t> tokens = marks(tokenizer, "--eos", options.eos, known);
    if (tokens.empty()) throw UsageError("--eos: rows are padded with a token; name one that the tokenizer has");
    return tokens.back();
}

/// Rows of conversations, padded with the end token, and one more of it: the target of the last row's last token.
struct Rows {
    std::vector<std::uint32_t> tokens;
    std::vector<std::uint8_t> mask;
    std::size_t rows = 0;
    std::int64_t padding = 0;
};

Rows pack(const std::vector<MaskedTokens>& conversations, std::size_t row, std::uint32_t end) {
    std::vector<std::size_t> lengths;
    for (const MaskedTokens& each : conversations) lengths.push_back(each.tokens.size());
    Rows result;
    for (const std::vector<std::size_t>& items : pack_rows(lengths, row)) {
        for (const std::size_t item : items) {
            const MaskedTokens& each = conversations[item];
            result.tokens.insert(result.tokens.end(), each.tokens.begin(), each.tokens.end());
            result.mask.insert(result.mask.end(), each.mask.begin(), each.mask.end());
        }
        const std::size_t until = ++result.rows * row;
        result.padding += static_cast<std::int64_t>(until - result.tokens.size());
        if (result.tokens.size() < until) result.mask.push_back(kMaskBegin);
        result.tokens.resize(until, end);
        result.mask.resize(until, 0);
    }
    result.tokens.push_back(end);
    result.mask.push_back(kMaskBegin);
    return result;
}

/// Writes STEM.bin and STEM.mask aside, and gives them their names with commit().
class PackedShard {
  public:
    PackedShard(const std::string& stem, const Setting& setting, const InputFiles& inputs)
        : setting_(setting), writer_(stem, setting.tokenizer.vocab_size(), 0, setting.options.overwrite, inputs) {}

    void write(const std::vector<MaskedTokens>& conversations) {
        const Rows packed = pack(conversations, static_cast<std::size_t>(setting_.options.seq_len), setting_.end);
        require(static_cast<std::int64_t>(packed.tokens.size()) <= ShardWriter::kMaxShardTokens, packed.tokens.size(),
                " tokens are more than a shard holds; divide the input");
        writer_.add(packed.tokens, packed.mask, setting_.options.seq_len);
        writer_.finish();
        const auto targets = std::count_if(packed.mask.begin(), packed.mask.end(), counts_as_target);
        const double all = static_cast<double>(packed.tokens.size());
        numbers_ = text(conversations.size(), " conversations in ", packed.rows, " rows of ", setting_.options.seq_len,
                        " tokens, ", packed.padding, " of them padding; ", targets, " targets");
        few_ = static_cast<double>(targets) < kFewTargets * all;
    }

    void commit() {
        const std::string file = writer_.commit().front().string();
        say(text(file, ": ", numbers_));
        if (few_) say(text("note: less than ", 100 * kFewTargets, "% of the tokens of ", file, " are targets"));
    }

  private:
    const Setting& setting_;
    ShardWriter writer_;
    std::string numbers_;
    bool few_ = false;
};

}  // namespace

void tokenize_conversations(const TokenizeOptions& options) {
    const Tokenizer tokenizer(read_tokenizer(options.tokenizer));
    require_vocab(tokenizer, options);
    const TokenizerFiles names = files_of(tokenizer);
    const DocumentMarks automatic = document_marks(names);
    const std::optional<TokenizerFiles::Marks> begin = names.begin();
    Setting setting{.tokenizer = tokenizer,
                    .options = options,
                    .bos = marks(tokenizer, "--bos", options.bos, begin ? begin->tokens : std::vector<std::int32_t>{}),
                    .end = end_token(tokenizer, options, names, automatic)};
    try {  // a template is an error where a conversation needs it
        setting.chat = read_chat_form(std::filesystem::path(options.tokenizer).parent_path(), chat_clock(""));
        setting.no_chat = text(
            "messages need a chat template, chat_template.jinja or chat_template in "
            "tokenizer_config.json, next to ",
            options.tokenizer);
    } catch (const Error& error) {
        setting.no_chat = error.what();
    }
    if (setting.chat) setting.chat->context.add_generation_prompt = false;
    say(text("rows are padded with ", tokenizer.bytes_of(setting.end), " (", setting.end, ")"));
    const std::vector<std::string> inputs = expand_inputs(options.inputs);
    InputFiles files;
    files.add(options.tokenizer);
    for (const std::string& input : inputs) files.add(input);
    const bool divided = options.segments.val_fraction > 0;
    PackedShard train(options.out + (divided ? "_train" : ""), setting, files);
    std::optional<PackedShard> validation;
    if (divided) validation.emplace(options.out + "_val", setting, files);

    SegmentOptions lines = options.segments;
    lines.format = TextFormat::jsonl;
    SegmentReader reader(tokenizer, inputs, lines);
    const std::size_t threads = thread_count(options);
    OrderedWorkers<Segment, Part> workers(threads, bytes_in_work(threads), [&] {
        return [encoder = std::make_shared<MaskedEncoder>(tokenizer), &setting](Segment& segment) {
            return encode_lines(segment, setting, *encoder);
        };
    });
    Part all;
    const auto take_oldest = [&] {
        Part part = workers.take();
        std::move(part.train.begin(), part.train.end(), std::back_inserter(all.train));
        std::move(part.validation.begin(), part.validation.end(), std::back_inserter(all.validation));
        all.truncated += part.truncated;
        all.without_target += part.without_target;
        all.replaced += part.replaced;
        if (interrupted()) throw InterruptedError("interrupted; nothing was written");
    };
    while (std::optional<Segment> segment = reader.next()) {
        const auto weight = static_cast<std::int64_t>(segment->text.size());
        while (!workers.has_room(weight)) take_oldest();
        workers.submit(std::move(*segment), weight);
    }
    while (!workers.empty()) take_oldest();

    require(!all.train.empty(), "no conversation of which a token counts is left for training (", all.without_target,
            " have none): no shard is written");
    require(!divided || !all.validation.empty(), "no conversation is left for validation; raise --val-fraction");
    train.write(all.train);
    if (validation) validation->write(all.validation);
    train.commit();
    if (validation) validation->commit();
    if (all.truncated > 0) say(text(all.truncated, " conversations were longer than a row and were truncated"));
    if (all.replaced > 0) say(text("invalid UTF-8 was replaced in ", all.replaced, " places"));
    if (all.without_target > 0)
        say(text(all.without_target, " conversations were left out, as none of their tokens counts"));
}

}  // namespace coda
