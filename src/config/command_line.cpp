#include "src/config/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "src/config/json_file.h"
#include "src/config/nearest.h"
#include "src/config/recorded_run.h"
#include "src/config/retired.h"
#include "src/config/schema.h"
#include "src/config/shell_quote.h"
#include "src/config/shipped.h"
#include "src/core/errors.h"

namespace coda {

namespace {

constexpr double kMaxInt32 = 2147483647;
constexpr double kMostRanks = 65536;

/// The flag of a key and the words that followed it.
struct KeyFlag {
    const Key* key;
    CLI::Option* option = nullptr;
    std::vector<std::string> words{};

    std::string name() const { return "--" + key->path(); }
};

/// A flag with one value that is not a configuration key.
struct WordFlag {
    std::string name;
    CLI::Option* option = nullptr;
    std::string word{};

    std::optional<std::string> value() const {
        if (option->count() == 0) return std::nullopt;
        std::string result;
        read_value(nlohmann::json(word), name, {}, result);
        return result;
    }
};

/// A flag's words as JSON. Words that are not JSON stay strings, which the key's reader then takes or refuses. Throws
/// UsageError where they begin an object and are none.
nlohmann::json json_of(FlagSyntax syntax, const std::string& flag, const std::vector<std::string>& words) {
    if (syntax == FlagSyntax::list) return words;
    if (syntax == FlagSyntax::nullable_string && words.back() == "null") return nullptr;
    if (syntax != FlagSyntax::json) return words.back();
    try {
        return parse_json_text(words.back(), flag);
    } catch (const Error& error) {
        if (words.back().starts_with('{')) throw UsageError(error.what());
        return words.back();
    }
}

/// Reads the flag's value, a number, into `out`; without the flag `out` stays unchanged.
template <class T>
void read_number(const WordFlag& flag, const Range& range, T& out) {
    if (flag.option->count() > 0) read_value(json_of(FlagSyntax::json, flag.name, {flag.word}), flag.name, range, out);
}

/// Flags that are gone, and what is said of them.
constexpr std::pair<const char*, const char*> kRetiredFlags[] = {
    {"--sample", "is coda_generate now: coda_generate --model RUN --tokens N --prompt TEXT"},
    {"--prompt", "is a flag of coda_generate now"},
    {"--prompt-tokens", "is gone: coda_generate --prompts FILE takes lines of {\"tokens\": [1, 2, 3]}"},
    {"--tokenizer", "is a flag of coda_generate now"},
    {"--temperature", "is a flag of coda_generate now"},
    {"--top-k", "is a flag of coda_generate now"},
    {"--top-p", "is a flag of coda_generate now"},
    {"--min-p", "is a flag of coda_generate now"},
    {"--repetition-penalty", "is a flag of coda_generate now"},
    {"--seed", "is a flag of coda_generate now"},
};

class Parser {
  public:
    Parser() {
        app_.set_help_flag("");
        app_.allow_extras();
        app_.get_formatter()->column_width(44);
        app_.footer(
            "Exit codes: 0 done, 1 run-time error, 2 bad command line or config, 3 non-finite loss, "
            "130 interrupted after a checkpoint.");
        add_modes();
        for (const Key& key : schema()) add_key(key);
    }

    CommandLine parse(int argc, const char* const* argv);

  private:
    void add_switch(const char* name, bool& value, const char* help) { app_.add_flag(name, value, help)->group("Run"); }

    void add_word(WordFlag& flag, const char* value_word, const std::string& help) {
        flag.option = app_.add_option(flag.name, flag.word, help)->option_text(value_word)->group("Run");
        flag.option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }

    void add_modes() {
        add_word(config_, "FILE",
                 "The configuration, a JSON file (required); a bare name that is not a file here is a shipped one");
        add_switch("--help,-h", help_, "Print this text");
        add_switch("--version", result_.version, "Print the build id");
        add_switch("--dry-run", result_.dry_run, "Check config, data and memory, print the plan, allocate nothing");
        add_word(ranks_, "N", "With --dry-run, what each of N ranks needs (default: 1)");
        add_switch("--print-config", result_.print_config, "Print the resolved configuration");
        add_switch("--print-schedule", result_.print_schedule, "Print every operation of a step");
        add_word(timing_, "FILE",
                 "Write per-operation timing as JSON, and FILE's stem + .trace.json for a trace viewer");
        add_word(
            tensor_stats_, "FILE",
            "Write the size of the numbers that the GEMMs of training multiply, per layer and tensor, as JSON Lines");
        add_word(tensor_stats_every_, "N", "With --tensor-stats, of every N-th step, the first included (default: 1)");
        add_word(oracle_, "N", "Re-run every operation of step N on an independent path and compare");
        add_switch("--resume", result_.resume, "Continue from the newest complete checkpoint");
        add_word(allow_, "WHAT",
                 "With --resume, continue although it differs: other-device, changed-data, or both with a comma");
        add_word(init_from_, "DIR", "Start from a Hugging Face folder; its config.json gives the model section");
        add_switch("--eval", result_.eval, "Only run the validation and the evaluation and print their results");
        add_word(export_, "DIR", "Write the weights as a Hugging Face folder");
        add_word(export_dtype_, "bfloat16|float32|int4",
                 "With --export, the weights as they are computed with (default), the master weights, or the layers' "
                 "matrices in 4 bits, as compressed-tensors packs them");
        add_word(calibrate_, "N",
                 "With --export-dtype int4, round by GPTQ over N training sequences instead of to nearest, and print "
                 "what each costs on the validation data");
        add_word(dump_batches_, "FILE", "Write the token batches for a reference implementation");
        add_switch("--overwrite", result_.overwrite,
                   "Let --timing, --tensor-stats and --dump-batches replace files of these names");
        add_word(
            decoder_, "auto|fused|passes",
            "What makes the tokens of samples: the fused kernel, or operation by operation; auto: the kernel where "
            "device and model allow it (default: passes)");
        add_word(
            watchdog_, "SECONDS",
            text("A wait within the fused kernel that lasts longer ends the run (default: ", kDefaultWatchdog, ")"));
    }

    void add_key(const Key& key) {
        KeyFlag& flag = keys_.emplace_back(KeyFlag{.key = &key});
        const std::string fallback = key.required ? "required" : "default: " + key.default_text;
        flag.option = app_.add_option(flag.name(), flag.words, text(key.help, " (", fallback, ")"));
        flag.option->option_text(key.value_word)->group(key.section.empty() ? "top level" : key.section);
        flag.option->allow_extra_args(false);  // else CLI11 splits a word in brackets, say a glob, at its commas
        if (key.syntax == FlagSyntax::list) return;
        flag.option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }

    std::vector<std::string> flag_names() const {
        std::vector<std::string> names;
        for (const CLI::Option* option : app_.get_options()) {
            for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
            for (const std::string& name : option->get_snames()) names.push_back("-" + name);
        }
        return names;
    }

    std::vector<std::string> reversed_words(int argc, const char* const* argv) const;
    void check_words(const std::vector<std::string>& left_over) const;
    void read_decoder();
    void read_allowed();
    void read_export();
    nlohmann::json read_config_file() const;
    void apply_flags(nlohmann::json& document) const;
    void apply_hf_model(nlohmann::json& document, const std::string& folder) const;
    std::string source_of(const Key& key) const;

    CLI::App app_{
        "Trains a LLaMA on one Hopper GPU, or on the CPU, from one JSON config. "
        "Flags win over the config file.",
        "coda_train"};
    CommandLine result_;
    bool help_ = false;
    WordFlag config_{"--config"}, ranks_{"--ranks"}, timing_{"--timing"}, tensor_stats_{"--tensor-stats"},
        tensor_stats_every_{"--tensor-stats-every"}, oracle_{"--oracle"}, allow_{"--allow"}, init_from_{"--init-from"},
        export_{"--export"}, export_dtype_{"--export-dtype"}, calibrate_{"--calibrate"},
        dump_batches_{"--dump-batches"}, decoder_{"--decoder"}, watchdog_{"--watchdog"};
    std::deque<KeyFlag> keys_;  // the options hold references to its elements
};

void Parser::check_words(const std::vector<std::string>& left_over) const {
    const std::vector<std::string> names = flag_names();
    for (const std::string& word : left_over) {
        if (word == "-" || word == "--" || word.empty() || word[0] != '-')
            throw UsageError(text("unexpected argument ", quote(word)));
        const std::string flag = word.substr(0, word.find('='));
        if (const RetiredKey* retired = retired_key(flag.substr(std::min<std::size_t>(2, flag.size())))) {
            throw UsageError(gone_text(*retired, flag));
        }
        for (const auto& [retired, said] : kRetiredFlags)
            if (flag == retired) throw UsageError(text(flag, " ", said));
        for (const KeyFlag& key : keys_) {
            const std::string parts = key.name() + ".";
            if (key.key->value_word.find("JSON") == std::string::npos || !flag.starts_with(parts)) continue;
            throw UsageError(text("unknown flag ", quote(flag), "; the parts of ", key.name(), " are one JSON object: ",
                                  key.name(), " '{\"", printable(flag.substr(parts.size()), ""), "\": ...}'"));
        }
        throw UsageError(text("unknown flag ", quote(flag), "; the nearest known flag is ", nearest(flag, names)));
    }
    // An option takes the next word, whatever it is: in "--export --resume" the folder was forgotten.
    for (const CLI::Option* option : app_.get_options()) {
        for (const std::string& word : option->results()) {
            const bool is_flag =
                option->get_items_expected_max() > 0 && std::count(names.begin(), names.end(), word) > 0;
            if (is_flag) throw UsageError(text(option->get_name(), ": expected a value, found the flag ", word));
        }
    }
}

nlohmann::json Parser::read_config_file() const {
    try {
        return read_json_file(*result_.config_path);
    } catch (const Error& error) {
        throw UsageError(error.what());
    }
}

void Parser::apply_flags(nlohmann::json& document) const {
    Config scratch;
    for (const KeyFlag& flag : keys_) {
        if (flag.option->count() == 0) continue;
        const nlohmann::json value = json_of(flag.key->syntax, flag.name(), flag.words);
        flag.key->read(value, flag.name(), scratch);
        flag.key->put(document, value);
    }
}

std::string Parser::source_of(const Key& key) const {
    const auto flag = std::find_if(keys_.begin(), keys_.end(), [&](const KeyFlag& each) { return each.key == &key; });
    return flag->option->count() > 0 ? flag->name() : *result_.config_path;
}

void Parser::apply_hf_model(nlohmann::json& document, const std::string& folder) const {
    const std::string file = (std::filesystem::path(folder) / "config.json").string();
    const nlohmann::json section = model_section_from_hf_folder(folder);
    for (const Key& key : schema()) {
        if (key.section != "model" || !section.contains(key.name)) continue;
        const nlohmann::json* given = key.find(document);
        if (given != nullptr && !(given->is_null() && key.null_is_absent)) {
            Config ours, theirs;
            key.read(*given, key.path(), ours);
            key.read(section[key.name], key.path(), theirs);
            if (key.write(ours) != key.write(theirs)) {
                throw UsageError(text(key.path(), ": ", source_of(key), " gives ", key.write(ours).dump(), ", but ",
                                      file, " gives ", key.write(theirs).dump(), "; leave it out or make them agree"));
            }
        }
        key.put(document, section[key.name]);
    }
    const std::filesystem::path tokenizer = std::filesystem::path(folder) / "tokenizer.json";
    std::error_code ignored;
    const Key& key = key_of("data", "tokenizer");
    if (key.find(document) == nullptr && std::filesystem::exists(tokenizer, ignored)) {
        key.put(document, tokenizer.string());
    }
}

// The words of argv, last first, as CLI11 wants them. "--data.train a b" becomes "--data.train a --data.train b".
std::vector<std::string> Parser::reversed_words(int argc, const char* const* argv) const {
    std::vector<std::string> words;
    std::string list_flag;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word.rfind("-", 0) == 0) {
            const auto flag =
                std::find_if(keys_.begin(), keys_.end(), [&](const KeyFlag& f) { return f.name() == word; });
            list_flag = flag != keys_.end() && flag->key->syntax == FlagSyntax::list ? word : "";
        } else if (!list_flag.empty() && words.back() != list_flag) {
            words.push_back(list_flag);
        }
        words.push_back(word);
    }
    std::reverse(words.begin(), words.end());
    return words;
}

void Parser::read_allowed() {
    const std::optional<std::string> list = allow_.value();
    if (!list) return;
    if (!result_.resume) throw UsageError("--allow: goes with --resume, which is not given");
    std::istringstream words(*list);
    for (std::string word; std::getline(words, word, ',');) {
        if (word != "other-device" && word != "changed-data") {
            throw UsageError(text("--allow: expected other-device or changed-data, found ", quote(word)));
        }
        (word == "other-device" ? result_.allow_other_device : result_.allow_changed_data) = true;
    }
}

void Parser::read_export() {
    result_.export_dir = export_.value();
    const std::optional<std::string> dtype = export_dtype_.value();
    if (!dtype) return;
    if (!result_.export_dir) throw UsageError("--export-dtype: goes with --export DIR, which is not given");
    constexpr std::pair<const char*, ExportDtype> kDtypes[] = {
        {"bfloat16", ExportDtype::bfloat16}, {"float32", ExportDtype::float32}, {"int4", ExportDtype::int4}};
    for (const auto& [name, value] : kDtypes) {
        if (*dtype != name) continue;
        result_.export_dtype = value;
        return;
    }
    throw UsageError(text("--export-dtype: expected bfloat16, float32 or int4, found ", quote(*dtype)));
}

void Parser::read_decoder() {
    const bool samples = result_.trains() && result_.config.samples.interval > 0;
    for (const WordFlag* flag : {&decoder_, &watchdog_}) {
        if (flag->option->count() == 0 || samples) continue;
        throw UsageError(text(flag->name, ": goes with samples.interval, which is not given"));
    }
    if (const std::optional<std::string> word = decoder_.value()) result_.decoder.choice = decoder_choice(*word);
    read_number(watchdog_, {.min = kShortestWatchdog, .max = kLongestWatchdog}, result_.decoder.watchdog_seconds);
}

CommandLine Parser::parse(int argc, const char* const* argv) {
    try {
        app_.parse(reversed_words(argc, argv));
    } catch (const CLI::ArgumentMismatch& error) {
        const std::string what = error.what();  // "--flag: 1 required TEXT missing"
        throw UsageError(what.substr(0, what.find(':')) + ": expected a value after the flag");
    } catch (const CLI::ParseError& error) {
        throw UsageError(error.what());
    }
    result_.command = quote_command(argc, argv);
    if (help_) result_.help = app_.help();
    if (help_ || result_.version) return result_;
    check_words(app_.remaining());

    result_.timing = timing_.value();
    result_.init_from = init_from_.value();
    read_export();
    result_.dump_batches = dump_batches_.value();
    result_.tensor_stats = tensor_stats_.value();
    if (result_.overwrite && !result_.timing && !result_.tensor_stats && !result_.dump_batches) {
        throw UsageError(
            "--overwrite: goes with --timing FILE, --tensor-stats FILE or --dump-batches FILE, and none is given");
    }
    if (calibrate_.option->count() > 0 && result_.export_dtype != ExportDtype::int4) {
        throw UsageError("--calibrate: goes with --export DIR --export-dtype int4, which is not given");
    }
    read_number(calibrate_, {.min = 1, .max = kMaxInt32}, result_.calibrate);
    if (ranks_.option->count() > 0 && !result_.dry_run && !result_.print_schedule) {
        throw UsageError("--ranks: goes with --dry-run or --print-schedule; python3 -m coda_torch --ranks N trains");
    }
    read_number(ranks_, {.min = 1, .max = kMostRanks}, result_.ranks);
    if (tensor_stats_every_.option->count() > 0 && !result_.tensor_stats) {
        throw UsageError("--tensor-stats-every: goes with --tensor-stats FILE, which is not given");
    }
    read_number(tensor_stats_every_, {.min = 1, .max = kMaxInt32}, result_.tensor_stats_every);
    const std::optional<std::string> config = config_.value();
    if (!config) throw UsageError("--config FILE is required (demo.json is a small one that is shipped)");
    result_.config_path = find_config(*config);

    nlohmann::json document = read_config_file();
    std::string where = *result_.config_path;
    const std::string name = std::filesystem::path(where).stem().string();
    try {
        read_present_keys(document);
    } catch (const UsageError& error) {
        throw UsageError(text(where, ": ", error.what()));
    }
    apply_flags(document);
    const bool recorded = result_.resume && take_recorded(document, name);
    if (result_.init_from && !recorded) apply_hf_model(document, *result_.init_from);
    const bool flags = std::any_of(keys_.begin(), keys_.end(), [](const KeyFlag& f) { return f.option->count() > 0; });
    if (flags) where += " with the flags";
    try {
        result_.config = parse_config(document, name);
    } catch (const UsageError& error) {
        throw UsageError(text(where, ": ", error.what()));
    }
    const Range steps{.min = 1, .max = static_cast<double>(result_.config.training.steps)};
    if (oracle_.option->count() > 0) read_number(oracle_, steps, result_.oracle_step.emplace());
    read_allowed();
    read_decoder();
    result_.resolved = to_json(result_.config);
    return result_;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) { return Parser().parse(argc, argv); }

}  // namespace coda
