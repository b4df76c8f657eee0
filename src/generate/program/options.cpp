#include "src/generate/program/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "src/config/codec.h"
#include "src/config/nearest.h"
#include "src/config/shell_quote.h"
#include "src/core/build_id.h"
#include "src/core/choice_options.h"
#include "src/core/errors.h"
#include "src/core/utf8.h"
#include "src/tokenize/chat/template.h"

namespace coda {
namespace {

constexpr const char* kFooter =
    R"(The text goes to standard output as it is made, figures and notes to standard error. Without a prompt the model begins
with its bos_token_id. A stop text that is one special token of the tokenizer ends the sequence as its end tokens do.
Defaults of the model's generation_config.json, where it has some, stand before those above.

--prompts: one JSON object per line, {"prompt" | "tokens" | "messages", and if wanted "id", "max_tokens", "seed",
"temperature", "top_k", "top_p", "min_p", "repetition_penalty", "stop"}; a line's value stands before the flag's. An
answer is a line {"id", "text", "tokens", "finish", "prompt_tokens", "ms"}, in the order of completion.

Exit codes: 0 done, 1 run-time error, 2 bad command line or config, 3 a logit is not finite, 130 interrupted: what was
made is printed.)";

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

/// CLI11 takes an empty word for a flag that was not given, and wraps or cuts integers that do not fit.
std::string seed_problem(const std::string& word) {
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), seed);
    const bool whole = error == std::errc() && end == word.data() + word.size();
    return whole ? "" : text("expected an integer from 0 to 2^64 - 1, found ", quote(word));
}
std::string empty_problem(const std::string& word) { return word.empty() ? "expected a number, found nothing" : ""; }

class Parser {
  public:
    Parser() {
        app_.set_version_flag("--version", build_id());
        app_.get_formatter()->column_width(34);
        app_.footer(kFooter);
        app_.allow_extras();
        add_input();
        add_choice();
        add_rest();
    }

    GenerateOptions parse(int argc, const char* const* argv);

  private:
    template <class Value>
    CLI::Option* add(const char* flag, Value& value, const std::string& word, const std::string& help) {
        return app_.add_option(flag, value, help)
            ->option_text(word)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }

    void add_input();
    void add_choice();
    void add_rest();
    void check_words() const;
    void check() const;

    CLI::App app_{"Text from a LLaMA: a Hugging Face folder, or a run's newest checkpoint.", "coda_generate"};
    GenerateOptions options_;
    std::string device_ = "auto", decoder_ = "auto", bos_;
};

void Parser::add_input() {
    add("--model", options_.model, "DIR (required)",
        "A Hugging Face folder (config.json, *.safetensors, tokenizer.json), or the folder of a run, whose newest "
        "complete checkpoint is taken, also while it trains");
    add("--tokenizer", options_.tokenizer, "FILE",
        "tokenizer.json (default: the model's; a model of 256 tokens without one has bytes)");
    add("--prompt", options_.prompt, "TEXT", "What the text follows");
    add("--prompt-file", options_.prompt_file, "FILE", "The same from a file, unchanged; - is standard input");
    add("--prompts", options_.prompts, "FILE.jsonl", "Many prompts, as JSON Lines; - is standard input");
    add("--bos", bos_, "yes|no",
        "Whether a text begins with the token that begins one (default: as the tokenizer's files say); not of a chat, "
        "nor of \"tokens\"")
        ->check(CLI::IsMember({"yes", "no"}));
    app_.add_flag("--chat", options_.chat, "The prompt is a user's message, put into the model's chat template");
    add("--system", options_.system, "TEXT", "The system message of a chat that has none");
    add("--date", options_.date, "TEXT",
        "The date that a template shows which asks for today's, as \"26 Jul 2024\" (default: today)");
}

void Parser::add_choice() {
    add("--tokens", options_.max_tokens, "N", text("Tokens of a sequence at most (default: ", kDefaultTokens, ")"))
        ->check(CLI::Range(std::int64_t{1}, kMost));
    add("--temperature", options_.temperature, "X", "Divides the logits; 0: always the likeliest token (default: 1)")
        ->check(empty_problem);
    add("--top-k", options_.top_k, "K", "Choose among the K likeliest tokens; 0: among all (default: 0)")
        ->check(CLI::Range(std::int64_t{0}, kMost));
    add("--top-p", options_.top_p, "P",
        "Choose among the likeliest tokens that together have the probability P (default: 1)")
        ->check(empty_problem);
    add("--min-p", options_.min_p, "P",
        "Choose among tokens that have P times the probability of the likeliest (default: 0)")
        ->check(empty_problem);
    add("--repetition-penalty", options_.repetition_penalty, "X",
        "Divides positive logits of tokens that were there before, multiplies negative ones (default: 1)")
        ->check(empty_problem);
    add("--seed", options_.seed, "INT", "Seed of the choice; each sequence has it for itself (default: 1337)")
        ->check(seed_problem);
    app_.add_option("--stop", options_.stop, "A text that ends the sequence and is no part of it; may be given again")
        ->option_text("TEXT")
        ->allow_extra_args(false);
}

void Parser::add_rest() {
    add("--context", options_.context, "N",
        "Positions of a sequence, prompt and tokens (default: the model's max_position_embeddings, at most 4096)")
        ->check(CLI::Range(std::int64_t{2}, kMost));
    add("--batch", options_.batch, text("1..", kMostSequences), "Sequences side by side (default: 1)")
        ->check(CLI::Range(1, kMostSequences));
    app_.add_flag(
        "--lookup", options_.decoder.lookup,
        text("Guess tokens from what a sequence had before, and check up to ", kLookupRows - 1,
             " per step: the same text, in fewer steps where it repeats; --batch 1 to ", kMostLookupSequences));
    add("--device", device_, "auto|cpu|cuda", "Where it runs (default: auto)");
    add("--decoder", decoder_, "auto|fused|passes",
        "What makes the tokens: a kernel that runs up to 32 steps per launch, or operation by operation (default: "
        "fused where device and model allow it)");
    add("--watchdog", options_.decoder.watchdog_seconds, "SECONDS",
        text("A wait within the fused kernel that lasts longer ends the program (default: ", kDefaultWatchdog, ")"));
    app_.add_flag("--json", options_.json, "The answer as a line of JSON, as with --prompts");
    app_.add_flag("--bench", options_.bench,
                  "Time steps of batches up to --batch and contexts up to --context; with --json as JSON Lines");
    app_.add_flag("--score", options_.score,
                  "Generate nothing: print the loss of the prompt's own tokens, decoded one by one");
    add("--logits", options_.logits, "FILE",
        "With --score, write the logits of every position but the last, as float32, row by row");
}

void Parser::check_words() const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app_.get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    for (const std::string& word : app_.remaining()) {
        if (word.size() < 2 || word[0] != '-') throw UsageError(text("unexpected argument ", quote(word)));
        const std::string flag = word.substr(0, word.find('='));
        throw UsageError(text("unknown flag ", quote(flag), "; the nearest known flag is ", nearest(flag, names)));
    }
}

void Parser::check() const {
    const auto both = [&](const char* a, const char* b) {
        if (app_.get_option(a)->count() > 0 && app_.get_option(b)->count() > 0) {
            throw UsageError(text(a, " and ", b, ": give one of them"));
        }
    };
    // Written so that NaN is refused.
    if (!(options_.decoder.watchdog_seconds >= kShortestWatchdog &&
          options_.decoder.watchdog_seconds <= kLongestWatchdog)) {
        throw UsageError(text("--watchdog: is ", options_.decoder.watchdog_seconds, ", must be a number from ",
                              kShortestWatchdog, " to ", kLongestWatchdog, " seconds"));
    }
    if (options_.model.empty()) throw UsageError("--model DIR is required: a Hugging Face folder or a run's folder");
    both("--prompt", "--prompt-file");
    both("--prompt", "--prompts");
    both("--prompt-file", "--prompts");
    for (const char* flag :
         {"--prompt", "--prompt-file", "--prompts", "--chat", "--stop", "--score", "--bos", "--lookup"}) {
        both("--bench", flag);
    }
    both("--chat", "--bos");
    if (options_.logits && !options_.score) throw UsageError("--logits: goes with --score, which is not given");
    if (options_.score && !options_.prompt && !options_.prompt_file && !options_.prompts) {
        throw UsageError("--score: there is no text; give --prompt, --prompt-file or --prompts");
    }
    both("--lookup", "--score");
    if (options_.decoder.lookup && options_.batch > kMostLookupSequences) {
        throw UsageError(text("--lookup: takes up to ", kMostLookupSequences, " sequences, and --batch is ",
                              options_.batch, "; lower --batch, or leave --lookup out"));
    }
    if (options_.score && options_.batch > 1) throw UsageError("--batch: --score takes one text after the other");
    if (options_.chat && !options_.prompt && !options_.prompt_file && !options_.prompts) {
        throw UsageError("--chat: there is no message; give --prompt, --prompt-file or --prompts");
    }
    if (options_.system && !options_.chat && !options_.prompts) {
        throw UsageError("--system: goes with --chat, or with \"messages\" of --prompts");
    }
    if (options_.batch > 1 && !options_.prompts && !options_.bench) {
        throw UsageError("--batch: one prompt is one sequence; several come with --prompts");
    }
    const auto text_of = [&](const char* flag, const std::string& value) {
        const std::size_t valid = valid_utf8(value);
        if (valid == value.size()) return;
        throw UsageError(text(flag, ": byte ", valid, " is no UTF-8; text must be UTF-8"));
    };
    if (options_.prompt) text_of("--prompt", *options_.prompt);
    if (options_.system) text_of("--system", *options_.system);
    if (options_.date) {
        text_of("--date", *options_.date);
        try {
            chat_clock(*options_.date);
        } catch (const Error& error) {
            throw UsageError(error.what());
        }
    }
    for (const std::string& stop : options_.stop) {
        if (stop.empty()) throw UsageError("--stop: an empty text would end every text");
        text_of("--stop", stop);
    }
}

GenerateOptions Parser::parse(int argc, const char* const* argv) {
    try {
        app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        options_.print = app_.help();
        return options_;
    } catch (const CLI::CallForVersion&) {
        options_.print = build_id() + "\n";
        return options_;
    } catch (const CLI::ParseError& error) {
        throw UsageError(text(error.what(), " (see --help)"));
    }
    check_words();
    read_value(nlohmann::json(device_), "--device", {}, options_.device);
    options_.decoder.choice = decoder_choice(decoder_);
    if (!bos_.empty()) options_.bos = bos_ == "yes";
    check();
    return options_;
}

}  // namespace

GenerateOptions parse_generate_options(int argc, const char* const* argv) { return Parser().parse(argc, argv); }

GenerationDefaults generation_defaults(const GenerateOptions& options, const GenerationConfig& config) {
    GenerationDefaults defaults{.max_tokens = options.max_tokens, .choice = config.over({}), .stop = config.stop};
    ChoiceOptions& choice = defaults.choice;
    const auto set = [](auto& value, const auto& given) {
        if (given) value = static_cast<std::remove_reference_t<decltype(value)>>(*given);
    };
    set(choice.temperature, options.temperature);
    set(choice.top_k, options.top_k);
    set(choice.top_p, options.top_p);
    set(choice.min_p, options.min_p);
    set(choice.repetition_penalty, options.repetition_penalty);
    set(choice.seed, options.seed);
    if (!options.stop.empty()) defaults.stop = options.stop;
    require_choice_options(choice, "--");
    return defaults;
}

}  // namespace coda
