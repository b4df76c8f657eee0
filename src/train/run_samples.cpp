#include "src/train/run_samples.h"

#include <algorithm>

#include "src/config/shell_quote.h"
#include "src/core/choice_options.h"
#include "src/core/errors.h"
#include "src/core/printable.h"
#include "src/generate/generation_config.h"
#include "src/io/run_tokenizer.h"
#include "src/io/text_marks.h"
#include "src/io/tokens.h"
#include "src/model/tensors/streams.h"
#include "src/text/open_codec.h"

namespace coda {

namespace {

/// The token that begins a document where data.document_mask keeps them apart. -1 without it, and with masks, which say
/// where a document begins.
std::int32_t separator_of(const Config& config) {
    const bool separates = config.data.document_mask && !have_masks(config.data.train);
    return static_cast<std::int32_t>(separates ? config.model.bos_token_id.value_or(-1) : -1);
}

/// What the model sees of a prompt; without one, what begins a document.
std::vector<std::int32_t> prompt_tokens(const std::optional<std::string>& prompt, const Config& config,
                                        TextCodec* codec, const std::vector<std::int32_t>& start) {
    std::vector<std::int32_t> tokens;
    if (codec && prompt) tokens = codec->encode(*prompt);
    begin_text(start, tokens);
    if (tokens.empty() && config.model.bos_token_id) {
        tokens.push_back(static_cast<std::int32_t>(*config.model.bos_token_id));
    }
    if (tokens.empty() && codec && !prompt) tokens = codec->encode("\n");
    if (tokens.empty())
        throw UsageError("samples.prompts: an empty text, and the model has no bos_token_id to begin with");
    for (const std::int32_t token : tokens) {
        if (token < config.model.vocab_size) continue;
        throw UsageError(text("samples.prompts: ", quote(prompt.value_or("")), " has the token ", token,
                              ", which is outside of model.vocab_size ", config.model.vocab_size));
    }
    const auto last = std::find(tokens.rbegin(), tokens.rend(), separator_of(config));
    if (last != tokens.rend()) tokens.erase(tokens.begin(), last.base() - 1);
    if (static_cast<std::int64_t>(tokens.size()) >= config.training.seq_len) {
        throw UsageError(text("samples.prompts: ", quote(prompt.value_or("")), " has ", tokens.size(),
                              " tokens, and a sample of training.seq_len ", config.training.seq_len,
                              " holds a prompt of up to ", config.training.seq_len - 1, " and what follows it"));
    }
    return tokens;
}

}  // namespace

ChoiceOptions choice_of(const SamplesConfig& samples) {
    return {.temperature = static_cast<float>(samples.temperature),
            .top_k = static_cast<std::int32_t>(samples.top_k),
            .top_p = static_cast<float>(samples.top_p),
            .min_p = static_cast<float>(samples.min_p),
            .repetition_penalty = static_cast<float>(samples.repetition_penalty),
            .seed = samples.seed};
}

RunPrompts run_prompts(const Config& config, bool resume) {
    std::shared_ptr<TextCodec> codec = text_codec(config, resume);
    const SamplesConfig& samples = config.samples;
    require_choice_options(choice_of(samples), "samples.");
    if (!codec && !samples.prompts.empty()) {
        throw UsageError(text("samples.prompts: a model with a vocabulary of ", config.model.vocab_size,
                              " needs its tokenizer for text, data.tokenizer; only one of 256 stands for bytes"));
    }
    if (!codec && !config.model.bos_token_id) {
        throw UsageError(
            "samples.interval: nothing to begin a sample with: the model has no bos_token_id, and there is no "
            "tokenizer for samples.prompts; give data.tokenizer, or samples.interval 0");
    }
    const std::optional<std::filesystem::path> file = tokenizer_file(config, resume);
    const std::optional<TokenizerFiles> files = file ? std::optional<TokenizerFiles>(*file) : std::nullopt;
    const TextStart start =
        text_start(files ? &*files : nullptr, {.model_bos = config.model.bos_token_id, .of_run = true});
    RunPrompts prompts{.codec = std::move(codec), .starts = {}, .note = start.note};
    const std::vector<std::int64_t>& ends = config.model.eos_token_id;
    prompts.end_tokens.assign(ends.begin(), ends.end());
    if (prompts.end_tokens.empty() && file && file->filename() == "tokenizer.json") {
        prompts.end_tokens = generation_config_in(file->parent_path()).end_tokens;
    }
    const std::int32_t separator = separator_of(config);
    std::vector<std::int32_t>& end_tokens = prompts.end_tokens;
    if (separator >= 0 && std::find(end_tokens.begin(), end_tokens.end(), separator) == end_tokens.end()) {
        end_tokens.push_back(separator);
    }
    if (static_cast<std::int64_t>(end_tokens.size()) > kMostEndTokens) {
        throw UsageError(text("model.eos_token_id: the model has ", end_tokens.size(),
                              " end tokens, and a sample takes up to ", kMostEndTokens));
    }
    const auto add = [&](const std::optional<std::string>& given) {
        prompts.starts.push_back({.text = prompts.codec ? std::optional(given.value_or("")) : std::nullopt,
                                  .tokens = prompt_tokens(given, config, prompts.codec.get(), start.tokens)});
    };
    for (const std::string& prompt : samples.prompts) add(prompt);
    if (samples.prompts.empty()) add(std::nullopt);
    return prompts;
}

PassSet training_passes(const Config& config) {
    const PassSet passes = passes_of(Mode::train);
    return config.samples.interval > 0 ? passes | passes_of(Mode::generate) : passes;
}

RunSamples::RunSamples(Session& session, std::shared_ptr<const RunPrompts> prompts, const DecoderOptions& decoder)
    : prompts_(std::move(prompts)), sampler_(session, decoder) {
    require(prompts_ != nullptr, "samples.interval is set, but nothing says what the samples follow");
    const Config& config = session.config();
    options_.tokens = config.samples.tokens;
    options_.choice = choice_of(config.samples);
    options_.end_tokens = prompts_->end_tokens;
    if (!prompts_->note.empty()) session.console().line("note: of the samples, " + prompts_->note);
}

void RunSamples::make(std::int64_t step, const std::function<void(const SampleRecord&)>& made) {
    for (std::size_t i = 0; i < prompts_->starts.size(); ++i) {
        const RunPrompts::Start& start = prompts_->starts[i];
        SampleRecord record{.step = step, .prompt = start.text, .text = std::nullopt, .tokens = {}};
        if (prompts_->codec) record.text.emplace();
        SamplingOptions options = options_;
        options.choice.seed += i;
        try {
            sampler_.sample(start.tokens, options, [&](std::int32_t token) {
                record.tokens.push_back(token);
                if (record.text) *record.text += prompts_->codec->decode(token);
            });
        } catch (const NonFiniteError& error) {
            throw NonFiniteError(text("sample ", i + 1, " at step ", step, ": ", error.what(),
                                      ". The step is not saved; try a lower optimizer.learning_rate, or --resume from "
                                      "the last checkpoint with one"));
        }
        made(record);
    }
}

std::string sample_line(const SampleRecord& record) {
    std::string shown;
    if (record.text) {
        shown = " \"" + printable(record.prompt.value_or("") + *record.text, "") + "\"";
    } else {
        for (const std::int32_t token : record.tokens) shown += text(" ", token);
    }
    return text("sample at step ", record.step, ":", shown);
}

}  // namespace coda
