#include "src/train/run_files.h"

#include <unistd.h>

#include <utility>

#include "kernels/core/error.h"

namespace coda {

namespace {

std::unique_ptr<Loader> validation_loader(const Config& config, TokenRanges ranges) {
    const LoaderOptions in_order{.seq_len = config.training.seq_len,
                                 .vocab = config.model.vocab_size,
                                 .shuffle = false,
                                 .repeat = false,
                                 .seed = config.training.seed};
    return std::make_unique<Loader>(std::move(ranges), in_order, 1);
}

std::vector<EvaluationShard> open_shards(const Config& config) {
    return open_evaluation_shards(config.evaluation.files, config.model.vocab_size, config.training.seq_len);
}

}  // namespace

TrainingData open_training_data(const Config& config) {
    const TrainingConfig& training = config.training;
    Datasets data = open_datasets(config.data, training.seq_len, config.model.vocab_size);
    const LoaderOptions shuffled{.seq_len = training.seq_len,
                                 .vocab = config.model.vocab_size,
                                 .shuffle = config.data.shuffle,
                                 .repeat = true,
                                 .seed = training.seed};
    const std::int64_t step = training.micro_batch_size * training.grad_accumulation_steps;
    TrainingData opened;
    opened.train = std::make_unique<Loader>(std::move(data.train), shuffled, step);
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

void require_own_directory(const Config& config, const RunOptions& options) {
    std::error_code error;
    const std::filesystem::path run = config.output.directory, log = run / "log.jsonl";
    require(options.resume || !std::filesystem::exists(log, error), log.string(), " exists: ", run.string(),
            " already holds a run; continue it with --resume, or choose another --output.directory");
}

void require_writable(const RunOptions& options) {
    namespace fs = std::filesystem;
    std::error_code error;
    for (const auto& [flag, file] :
         {std::pair("--timing ", options.timing), {"--dump-batches ", options.dump_batches}}) {
        if (!file) continue;
        const fs::path folder = fs::absolute(*file).parent_path();
        require(fs::is_directory(folder, error), flag, file->string(), ": there is no folder ", folder.string());
        require(!fs::is_directory(*file, error), flag, file->string(), ": is a folder; give the name of a file");
        require(::access(folder.c_str(), W_OK) == 0, flag, file->string(), ": the folder ", folder.string(),
                " cannot be written to");
    }
}

}  // namespace coda
