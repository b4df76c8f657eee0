#include "src/tokenize/options.h"

#include <CLI/CLI.hpp>
#include <map>

#include "src/core/build_id.h"
#include "src/core/errors.h"
#include "src/tokenize/shard_writer.h"

namespace coda {
namespace {

constexpr const char* kFooter =
    R"(Inputs: a .txt file is one document; each line of a .jsonl file is one, with the text in a field. Either may be .gz
or .zst (known by its first bytes). "-" is standard input, taken as text unless --format says jsonl.

Output: STEM.bin; with --val-fraction STEM_train.bin and STEM_val.bin; with --shard-tokens these numbered,
STEM_train_000000.bin and so on. uint16 tokens up to a vocabulary of 65536, else uint32. Shards get their names together
when all are complete; an error or Ctrl-C leaves nothing.

Text is taken unchanged: NUL, carriage returns and a byte order mark are like other characters, and a special token that
is spelled out in the text becomes that token. A document without text gives no tokens. JSON lines are held whole, up
to 1 GiB; text in which no cut leaves all tokens as they are, up to 64 MiB.

With --seq-len each line is a conversation: {"messages"}, {"conversations"}, {"prompt", "completion"} or {"text"}. They
are rendered with the chat template in the tokenizer's folder and packed into rows; STEM.mask, next to STEM.bin, says
which tokens are targets. In messages a special token that is spelled out stays text.

Exit codes: 0 done, 1 run-time error, 2 bad command line, 130 interrupted.)";

template <class Value>
CLI::Option* choice(CLI::App& app, const char* flag, Value& value, const std::map<std::string, Value>& names,
                    const char* help) {
    return app.add_option(flag, value, help)->transform(CLI::CheckedTransformer(names))->option_text([&] {
        std::string all;
        for (const auto& [name, unused] : names) all += (all.empty() ? "" : "|") + name;
        return all;
    }());
}

void add_options(CLI::App& app, TokenizeOptions& o) {
    app.add_option("--tokenizer", o.tokenizer, "Hugging Face tokenizer.json with a BPE model")
        ->option_text("FILE (required)")
        ->required();
    app.add_option("inputs", o.inputs, "Files, globs or - (standard input); shards with --decode")
        ->option_text("INPUT...")
        ->required();
    app.add_option("--out", o.out, "Stem of the shards; with --decode a file (default: standard output)")
        ->option_text("STEM");
    choice<TextFormat>(app, "--format", o.segments.format,
                       {{"auto", TextFormat::automatic}, {"txt", TextFormat::txt}, {"jsonl", TextFormat::jsonl}},
                       "What the inputs are (default: by their names)");
    app.add_option("--field", o.documents.field, "Field of a JSON line with the text (default: text)")
        ->option_text("NAME");
    app.add_option("--shard-tokens", o.shard_tokens, "Tokens of a shard (default: one file of up to 2^31 - 1)")
        ->option_text("N")
        ->check(CLI::Range(std::int64_t{1}, ShardWriter::kMaxShardTokens));
    app.add_option("--val-fraction", o.segments.val_fraction, "Fraction of the data for validation (default: 0)")
        ->option_text("F")
        ->check(CLI::Range(0.0, 1.0));
    choice<SplitAt>(
        app, "--split-at", o.segments.split_at, {{"document", SplitAt::document}, {"blank-line", SplitAt::blank_line}},
        "Validation takes whole documents, evenly spread (default), or the end of every text, from its last "
        "blank line within the first 1 - F of the characters on");
    app.add_option("--bos", o.bos,
                   "Token before each document: its text, none, or auto (default): as the tokenizer's files begin a "
                   "text, else <|begin_of_text|>, <s> or <|endoftext|>, whichever it has")
        ->option_text("TOKEN");
    app.add_option("--eos", o.eos,
                   "Token after each document: its text, none, or auto (default): as the tokenizer's template ends a "
                   "text, else <|end_of_text|> or </s>, where it has the token that begins a text with it")
        ->option_text("TOKEN");
    app.add_option("--seq-len", o.seq_len,
                   "Fine-tuning data: pack conversations (JSON Lines) into rows of N tokens, the model's "
                   "training.seq_len, and write STEM.mask next to STEM.bin")
        ->option_text("N")
        ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 30));
    choice<TrainOn>(app, "--train-on", o.train_on,
                    {{"assistant", TrainOn::assistant}, {"last", TrainOn::last}, {"all", TrainOn::all}},
                    "With --seq-len: what counts as a target: what the assistant says (default), only the last of "
                    "it, or all tokens");
    app.add_option("--vocab", o.vocab, "The model's vocab_size: refuse a tokenizer with larger ids")
        ->option_text("N")
        ->check(CLI::PositiveNumber);
    choice<InvalidUtf8>(app, "--invalid-utf8", o.documents.invalid_utf8,
                        {{"stop", InvalidUtf8::stop}, {"replace", InvalidUtf8::replace}},
                        "Stop at text that is not UTF-8, naming the byte (default), or put U+FFFD there");
    app.add_option("--threads", o.threads, "Threads that encode (default: one per core)")
        ->option_text("N")
        ->check(CLI::Range(1, 1024));
    app.add_flag("--overwrite", o.overwrite, "Replace shards of this stem");
    app.add_flag("--decode", o.decode, "Turn shards back into text");
    app.add_flag("--skip-special", o.skip_special, "With --decode: leave special tokens out");
}

void check(const CLI::App& app, const TokenizeOptions& o) {
    const auto given = [&](const char* flag) { return app.get_option(flag)->count() > 0; };
    if (o.decode) {
        for (const char* flag : {"--format", "--field", "--shard-tokens", "--val-fraction", "--split-at", "--bos",
                                 "--eos", "--vocab", "--invalid-utf8", "--threads", "--seq-len", "--train-on"}) {
            if (given(flag)) throw UsageError(text(flag, " has no meaning with --decode"));
        }
        return;
    }
    if (o.skip_special) throw UsageError("--skip-special has no meaning without --decode");
    if (o.out.empty()) throw UsageError("--out STEM is required: where the shards go");
    if (o.segments.val_fraction >= 1) throw UsageError("--val-fraction must be below 1: training needs data too");
    if (given("--train-on") && o.seq_len == 0) throw UsageError("--train-on has no meaning without --seq-len");
    if (o.seq_len > 0) {
        for (const char* flag : {"--format", "--field", "--shard-tokens", "--split-at"}) {
            if (given(flag)) throw UsageError(text(flag, " has no meaning with --seq-len"));
        }
    }
    if (given("--split-at") && o.segments.val_fraction == 0) {
        throw UsageError("--split-at has no meaning without --val-fraction");
    }
}

}  // namespace

TokenizeOptions parse_tokenize_options(int argc, const char* const* argv) {
    TokenizeOptions options;
    CLI::App app("Turns text into token shards (llm.c's format) and back.", "coda_tokenize");
    app.set_version_flag("--version", build_id());
    app.get_formatter()->column_width(34);
    app.footer(kFooter);
    add_options(app, options);
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        options.print = app.help();
        return options;
    } catch (const CLI::CallForVersion&) {
        options.print = build_id() + "\n";
        return options;
    } catch (const CLI::ParseError& error) {
        throw UsageError(text(error.what(), " (see --help)"));
    }
    check(app, options);
    return options;
}

}  // namespace coda
