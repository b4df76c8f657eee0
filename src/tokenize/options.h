// The command line of coda_tokenize.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/tokenize/encode_segment.h"
#include "src/tokenize/masked_tokens.h"
#include "src/tokenize/segments.h"

namespace coda {

struct TokenizeOptions {
    std::string tokenizer;            // path of tokenizer.json
    std::vector<std::string> inputs;  // paths, globs, "-"; shards with decode
    std::string out;                  // stem of the shards; with decode a file, or "" for standard output
    SegmentOptions segments;
    DocumentOptions documents;  // bos and eos are not set; see below
    std::string bos = "auto", eos = "auto";
    std::int64_t shard_tokens = 0;  // 0: one file
    std::int64_t vocab = 0;         // 0: not checked
    std::int64_t seq_len = 0;       // fine-tuning data in rows of this many tokens; 0: documents
    TrainOn train_on = TrainOn::assistant;
    std::size_t threads = 0;  // 0: all cores
    bool overwrite = false, decode = false, skip_special = false;

    std::optional<std::string> print;  // --help or --version: print this and exit
};

/// Throws UsageError naming the flag.
TokenizeOptions parse_tokenize_options(int argc, const char* const* argv);

}  // namespace coda
