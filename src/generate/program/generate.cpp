#include "src/generate/program/generate.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "src/core/console.h"
#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/core/utf8.h"
#include "src/generate/make_decoder.h"
#include "src/generate/program/bench.h"
#include "src/generate/program/lines.h"
#include "src/generate/program/model_folder.h"
#include "src/generate/program/output.h"
#include "src/generate/program/prompts.h"
#include "src/generate/program/score_output.h"
#include "src/io/files.h"
#include "src/io/text_marks.h"
#include "src/text/open_codec.h"

namespace coda {
namespace {

constexpr std::int64_t kDefaultContext = 4096;

std::int64_t context_of(const GenerateOptions& options, const ModelConfig& model, Console& notes) {
    const std::int64_t most = model.max_position_embeddings;
    if (!options.context) return std::min(most, kDefaultContext);
    if (*options.context > most) {
        if (model.position_embeddings == PositionEmbeddings::learned)
            throw UsageError(text("--context ", *options.context, " is more than model.max_position_embeddings ", most,
                                  ", and the model's positions are learned: it has no more of them"));
        notes.line(text("note: --context ", *options.context, " is beyond the model's max_position_embeddings ", most,
                        "; it has not learnt such positions"));
    }
    return *options.context;
}

std::unique_ptr<TextCodec> codec_of(const GenerateOptions& options, const ModelFolder& model) {
    const std::int64_t vocab = model.config.model.vocab_size;
    if (options.tokenizer) return open_text_codec(*options.tokenizer, vocab);
    if (model.tokenizer) return open_text_codec(model.tokenizer->string(), vocab);
    require(vocab == 256, "--model: there is no tokenizer.json ", model.run ? "with the run " : "in ",
            model.folder.string(), ", and a vocabulary of ", vocab,
            " tokens needs one for text; give --tokenizer FILE, or make one with transformers: "
            "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) (only a vocabulary of 256 stands for bytes)");
    return make_byte_codec();
}

/// The tokenizer that a checkpoint must agree with: the one that is used, unless --tokenizer takes another.
std::optional<RunTokenizer> checked_tokenizer(const GenerateOptions& options, const ModelFolder& model) {
    if (options.tokenizer || !model.run || !model.tokenizer) return std::nullopt;
    Config config = model.config;
    config.data.tokenizer = model.tokenizer->string();
    return open_tokenizer(config, true);
}

/// The text of --prompt-file, valid UTF-8; nothing after an interrupt.
std::string prompt_of_file(const std::string& path) {
    const std::string name = path == "-" ? "standard input" : path;
    const std::string content = path == "-" ? LineReader(path).rest() : read_file(path);
    if (interrupted()) return {};  // a part of it may end within a character
    const std::size_t valid = valid_utf8(content);
    require(valid == content.size(), "--prompt-file: ", name, ": byte ", valid, " is no UTF-8; convert it (iconv)");
    return content;
}

/// The one request of --prompt, --prompt-file or neither.
GenerationRequest single_request(const GenerateOptions& options, const GenerationDefaults& defaults) {
    const bool from_file = options.prompt_file.has_value();
    return {.id = 1,
            .prompt = from_file ? prompt_of_file(*options.prompt_file) : options.prompt.value_or(""),
            .max_tokens = defaults.max_tokens,
            .choice = defaults.choice,
            .stop = defaults.stop,
            .place = from_file ? text("--prompt-file ", *options.prompt_file) : "--prompt"};
}

/// Where requests come from: the one of the command line, a file, which is read and checked as a whole first, or
/// standard input, line by line.
class Requests {
  public:
    using Prepared = std::pair<GenerationRequest, PreparedPrompt>;

    Requests(const GenerateOptions& options, GenerationDefaults defaults, PromptReader reader)
        : defaults_(std::move(defaults)), reader_(std::move(reader)) {
        if (!options.prompts) {
            const GenerationRequest request = single_request(options, defaults_);
            if (interrupted()) return;
            ready_.emplace_back(request, reader_.prepare(request));
            return;
        }
        lines_ = std::make_unique<LineReader>(*options.prompts);
        if (*options.prompts == "-") return;
        while (auto prepared = read(true)) ready_.push_back(std::move(*prepared));
        require(!ready_.empty(), *options.prompts, ": there is no line with a prompt");
        lines_.reset();
    }

    /// None if there is no request left or, without `wait`, none so far.
    std::optional<Prepared> next(bool wait) {
        if (ready_.empty()) return lines_ ? read(wait) : std::nullopt;
        Prepared first = std::move(ready_.front());
        ready_.pop_front();
        return first;
    }

  private:
    std::optional<Prepared> read(bool wait) {
        const std::optional<std::string> line = lines_->next(wait);
        if (!line) return std::nullopt;
        const GenerationRequest request = parse_request(*line, lines_->name(), lines_->number(), defaults_);
        return Prepared{request, reader_.prepare(request)};
    }

    GenerationDefaults defaults_;
    PromptReader reader_;
    std::unique_ptr<LineReader> lines_;
    std::deque<Prepared> ready_;
};

/// Runs all requests. A bad one ends it after those that are on their way.
void run(GenerationBatch& batch, Requests& requests, const std::function<void(const GenerationAnswer&)>& done) {
    std::exception_ptr bad;
    bool more = true;
    while (!interrupted()) {
        try {
            while (more && !batch.full()) {
                const bool wait = batch.running() == 0;
                auto prepared = requests.next(wait);
                if (!prepared) {
                    more = !wait;
                    break;
                }
                batch.start(prepared->first, std::move(prepared->second.tokens), std::move(prepared->second.end_tokens),
                            prepared->second.own_text);
            }
        } catch (const Error&) {
            bad = std::current_exception();
            more = false;
        }
        if (batch.running() == 0) {
            if (!more) break;
            continue;
        }
        for (const GenerationAnswer& answer : batch.step(batch.usual_steps())) done(answer);
    }
    for (const GenerationAnswer& answer : batch.cancel()) done(answer);
    if (bad) std::rethrow_exception(bad);
}

/// What begins a text; says which row of the rule gave it.
std::vector<std::int32_t> start_of(const GenerateOptions& options, const ModelFolder& model, Console& notes) {
    const auto file = options.tokenizer ? std::optional<std::filesystem::path>(*options.tokenizer) : model.tokenizer;
    const std::optional<TokenizerFiles> files = file ? std::optional<TokenizerFiles>(*file) : std::nullopt;
    TextStart start =
        text_start(files ? &*files : nullptr,
                   {.model_bos = model.config.model.bos_token_id, .of_run = model.run, .forced = options.bos});
    if (!start.note.empty() && !options.chat) notes.line("note: " + start.note);
    return std::move(start.tokens);
}

PromptRules rules_of(const GenerateOptions& options, const ModelFolder& model, TextCodec& codec, std::int64_t context,
                     Console& notes) {
    const ModelConfig& shape = model.config.model;
    PromptRules rules{
        .codec = codec,
        .vocab = shape.vocab_size,
        .context = context,
        .end_tokens = model.generation.end_tokens,
        .chat = options.chat,
        .score = options.score,
        .system = options.system,
        .read_chat = [&model, date = options.date.value_or("")] { return model.chat_form(chat_clock(date)); }};
    rules.start = start_of(options, model, notes);
    if (shape.bos_token_id) rules.bos = static_cast<std::int32_t>(*shape.bos_token_id);
    return rules;
}

void say_ignored(const GenerationConfig& config, Console& notes) {
    if (config.ignored.empty()) return;
    std::string names;
    for (const std::string& key : config.ignored) names += (names.empty() ? "" : ", ") + key;
    notes.line(text("note: generation_config.json has ", names, ", which this program does not know and leaves out"));
}

}  // namespace

int generate(const GenerateOptions& options) {
    Console notes(stderr);
    ModelFolder model = open_model_folder(options.model);
    model.config.device = options.device;
    const GenerationDefaults defaults = generation_defaults(options, model.generation);
    const std::int64_t context = context_of(options, model.config.model, notes);

    const auto open_weights = [&] {
        return WeightsSource(model.config, model.weights(), false, checked_tokenizer(options, model), notes);
    };
    if (options.bench) {
        const WeightsSource weights = open_weights();
        const int most = options.batch > 1 ? options.batch : kMostSequences;
        bench(
            [&](int batch) {
                return make_decoder(model.config, {batch, context}, weights, options.decoder, notes);
            },
            {.most_slots = most, .context = context, .vocab = model.config.model.vocab_size, .json = options.json});
        return interrupted() ? kExitInterrupted : kExitDone;
    }

    say_ignored(model.generation, notes);
    if (options.decoder.lookup && defaults.choice.repetition_penalty != 1)
        notes.line(text("note: with a repetition penalty, here ", defaults.choice.repetition_penalty,
                        ", --lookup guesses nothing: a choice depends on the tokens before it"));
    const std::unique_ptr<TextCodec> codec = codec_of(options, model);
    Requests requests(options, defaults, PromptReader(rules_of(options, model, *codec, context, notes)));
    if (interrupted()) return kExitInterrupted;
    std::unique_ptr<BatchDecoder> decoder;
    {
        WeightsSource weights = open_weights();
        decoder = make_decoder(model.config, {options.batch, context}, weights, options.decoder, notes);
    }
    if (options.score) {
        ScoreOutput output(options);
        while (!interrupted()) {
            const auto prepared = requests.next(true);
            if (!prepared) break;
            output.score(*decoder, prepared->first, prepared->second);
        }
        output.finish();
        return interrupted() ? kExitInterrupted : kExitDone;
    }
    TextOutput output;
    GenerationBatch batch(*decoder, *codec, [&](const GenerationRequest&, std::string_view piece) {
        if (!options.lines()) output.put(piece);
    });
    const auto done = [&](const GenerationAnswer& answer) {
        if (options.lines()) {
            put_answer(answer);
        } else {
            output.finish();
        }
    };
    run(batch, requests, done);
    notes.line(figures_line(batch.figures()));
    return interrupted() ? kExitInterrupted : kExitDone;
}

}  // namespace coda
