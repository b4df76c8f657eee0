// The command line of coda_generate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/core/decoder_options.h"
#include "src/generate/generation_config.h"
#include "src/generate/request.h"

namespace coda {

struct GenerateOptions {
    std::string model;                               // a Hugging Face folder, or a run's
    std::optional<std::string> tokenizer;            // tokenizer.json, in place of the model's
    std::optional<std::string> prompt, prompt_file;  // one text; "-" is standard input
    std::optional<std::string> prompts;              // JSON Lines; "-" is standard input
    bool chat = false;                               // prompts are messages of a user
    std::optional<bool> bos;                         // a text begins with BOS; default: as the model's files say
    std::optional<std::string> system, date;         // of a chat
    std::int64_t max_tokens = kDefaultTokens;        // per sequence
    std::optional<std::int64_t> context;             // positions per sequence
    int batch = 1;                                   // sequences side by side
    std::optional<double> temperature, top_p, min_p, repetition_penalty;
    std::optional<std::int64_t> top_k;
    std::optional<std::uint64_t> seed;
    std::vector<std::string> stop;
    bool json = false, bench = false;
    bool score = false;                 // no text is made: the loss of the prompts
    std::optional<std::string> logits;  // with score: a file for the logits of every position
    DeviceChoice device = DeviceChoice::automatic;
    DecoderOptions decoder;

    std::optional<std::string> print;  // --help or --version: print this and exit

    bool lines() const { return prompts.has_value() || json; }  // answers are JSON Lines
};

/// Throws UsageError naming the flag.
GenerateOptions parse_generate_options(int argc, const char* const* argv);

/// How sequences are made: the flags, else what `config` says, else the defaults. Throws UsageError naming the flag.
GenerationDefaults generation_defaults(const GenerateOptions& options, const GenerationConfig& config);

}  // namespace coda
