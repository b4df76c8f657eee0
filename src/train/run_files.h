// The files of a run: what it reads is opened, and what it writes is known to be writable, before it allocates.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/io/evaluation_shard.h"
#include "src/io/loader.h"
#include "src/train/run_options.h"

namespace coda {

/// What an evaluation reads.
struct EvaluationData {
    std::unique_ptr<Loader> validation;
    std::vector<EvaluationShard> shards;
};

/// What training reads. `train` is shuffled if so configured; validation comes in its order.
struct TrainingData {
    std::unique_ptr<Loader> train;
    EvaluationData evaluation;
};

/// Throw Error naming the file or pattern of data.train, data.val or evaluation.files that is not such data, or when
/// one step takes more sequences than there are. An evaluation opens data.train only where its end is the validation
/// data.
TrainingData open_training_data(const Config& config);
EvaluationData open_evaluation_data(const Config& config);

/// Notes for the console where less than kFewTargets of the tokens in files with a mask are targets, and where rows of
/// their packing are not sequences of the run.
std::vector<std::string> notes_of_masks(const TokenRanges& train, std::int64_t seq_len);

/// Throws Error when training would overwrite another run, whose log is in output.directory.
void require_own_directory(const Config& config, const RunOptions& options);

/// Throws Error when a file of the options cannot be written, or would replace something: another file without
/// options.overwrite, anything but a regular file, what the run reads, or what it writes in its folder.
void require_outputs(const Config& config, const RunOptions& options);

}  // namespace coda
