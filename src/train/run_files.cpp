#include "src/train/run_files.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/core/error.h"
#include "src/core/errors.h"
#include "src/engine/timing.h"
#include "src/io/files.h"
#include "src/io/output_file.h"
#include "src/io/tokens.h"

namespace coda {

namespace {

namespace fs = std::filesystem;

std::unique_ptr<Loader> make_loader(const Config& config, TokenRanges ranges, bool trains, std::int64_t step) {
    if (config.data.document_mask && !config.model.bos_token_id) {
        for (const TokenRange& range : ranges) {
            if (range.file->mask() != nullptr) continue;
            throw UsageError(
                text("data.document_mask: needs model.bos_token_id, which tells where a document begins in ",
                     range.file->name(), ", because no mask lies next to it"));
        }
    }
    const LoaderOptions options{.seq_len = config.training.seq_len,
                                .vocab = config.model.vocab_size,
                                .shuffle = trains && config.data.shuffle,
                                .repeat = trains,
                                .seed = config.training.seed,
                                .bos = static_cast<std::int32_t>(config.model.bos_token_id.value_or(-1))};
    return std::make_unique<Loader>(std::move(ranges), options, step);
}

std::unique_ptr<Loader> validation_loader(const Config& config, TokenRanges ranges) {
    return make_loader(config, std::move(ranges), false, 1);
}

std::vector<EvaluationShard> open_shards(const Config& config) {
    return open_evaluation_shards(config.evaluation.files, config.model.vocab_size, config.training.seq_len);
}

InputFiles inputs_of(const Config& config, const RunOptions& options) {
    InputFiles inputs;
    for (const auto* patterns : {&config.data.train, &config.data.val, &config.evaluation.files}) {
        for (const std::string& pattern : *patterns) {
            try {
                for (const fs::path& file : expand_paths({pattern})) {
                    inputs.add(file);
                    inputs.add(mask_path(file));
                }
            } catch (const Error&) {
                continue;  // no such file: who opens the data says so, and how to get it
            }
        }
    }
    if (config.data.tokenizer) inputs.add(*config.data.tokenizer);
    if (options.init_from) inputs.add_folder(*options.init_from);
    for (const fs::path& file : options.inputs) inputs.add(file);
    return inputs;
}

/// The names in output.directory that belong to the run.
constexpr std::array kOfTheRun = {"log.jsonl", "plan.json", "lock", "checkpoints", "tokenizer"};

/// Throws Error when `path` is a place that the run itself writes to, now or later.
void require_outside(const std::string& flag, const fs::path& path, const fs::path& run) {
    const fs::path file = place_of(path), folder = place_of(run);
    const fs::path to_run = folder.lexically_relative(file), from_run = file.lexically_relative(folder);
    const bool is_above = to_run == "." || (!to_run.empty() && *to_run.begin() != "..");
    require(!is_above, flag, " ", path.string(), ": the run's output.directory ", run.string(),
            " takes this name; give another one");
    const std::string first = from_run.empty() ? "" : from_run.begin()->string();
    const bool taken = std::any_of(kOfTheRun.begin(), kOfTheRun.end(),
                                   [&](const char* name) { return first == name || first == aside_of(name); });
    require(!taken, flag, " ", path.string(), ": the run itself writes ", first, " in its output.directory ",
            run.string(), "; give another name");
}

}  // namespace

TrainingData open_training_data(const Config& config) {
    const TrainingConfig& training = config.training;
    Datasets data = open_datasets(config.data, training.seq_len, config.model.vocab_size);
    const std::int64_t step = training.micro_batch_size * training.grad_accumulation_steps;
    TrainingData opened;
    opened.train = make_loader(config, std::move(data.train), true, step);
    opened.evaluation.validation = validation_loader(config, std::move(data.val));
    opened.evaluation.shards = open_shards(config);
    return opened;
}

EvaluationData open_evaluation_data(const Config& config) {
    EvaluationData opened;
    opened.validation =
        validation_loader(config, open_validation(config.data, config.training.seq_len, config.model.vocab_size));
    opened.shards = open_shards(config);
    return opened;
}

std::vector<std::string> notes_of_masks(const TokenRanges& train, std::int64_t seq_len) {
    std::vector<std::string> notes;
    std::int64_t targets = 0, tokens = 0, row = 0;
    for (const TokenRange& range : train) {
        if (range.file->mask() == nullptr) continue;
        targets += range.file->mask()->targets();
        tokens += range.file->count();
        if (const std::int64_t its = range.file->mask()->row(); its != 0 && its != seq_len) row = its;
    }
    if (row != 0) {
        notes.push_back(text("note: data.train was packed with --seq-len ", row, ", and training.seq_len is ", seq_len,
                             ": sequences begin within conversations"));
    }
    const double share = static_cast<double>(targets) / static_cast<double>(std::max<std::int64_t>(1, tokens));
    if (tokens == 0 || share >= kFewTargets) return notes;
    notes.push_back(text("note: the masks of data.train count ", targets, " of ", tokens, " tokens, less than ",
                         100 * kFewTargets, "%: is coda_tokenize's --train-on what was meant?"));
    return notes;
}

void require_own_directory(const Config& config, const RunOptions& options) {
    std::error_code error;
    const std::filesystem::path run = config.output.directory, log = run / "log.jsonl";
    require(options.resume || !std::filesystem::exists(log, error), log.string(), " exists: ", run.string(),
            " already holds a run; continue it with --resume, or choose another --output.directory");
}

void require_outputs(const Config& config, const RunOptions& options) {
    std::vector<NamedOutput> outputs;
    if (options.timing) {
        outputs.emplace_back("--timing", *options.timing);
        outputs.emplace_back("--timing", trace_file_of(*options.timing));
    }
    if (options.dump_batches) outputs.emplace_back("--dump-batches", *options.dump_batches);
    if (options.tensor_stats) outputs.emplace_back("--tensor-stats", *options.tensor_stats);
    if (outputs.empty()) return;

    const InputFiles inputs = inputs_of(config, options);
    for (const auto& [flag, path] : outputs) {
        require_output_file(flag, path, options.overwrite, inputs);
        require_outside(flag, path, config.output.directory);
    }
    require_different_outputs(outputs);
}

}  // namespace coda
