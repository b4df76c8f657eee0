// What --model names: a Hugging Face folder, or a run's. Its configuration and the files next to the weights.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/config/config.h"
#include "src/engine/weights_source.h"
#include "src/generate/generation_config.h"
#include "src/tokenize/chat/template.h"

namespace coda {

struct ModelFolder {
    std::filesystem::path folder;
    bool run = false;                                // it has checkpoints
    Config config;                                   // of a Hugging Face folder only the model
    std::optional<std::filesystem::path> tokenizer;  // tokenizer.json
    GenerationConfig generation;                     // the end tokens are config.json's where it has none

    /// The chat template in chat_template.jinja, else in tokenizer_config.json. Throws Error if neither has one, or it
    /// is no template.
    ChatTemplate chat_template() const;

    /// What a template finds as bos_token, eos_token and so on: texts of tokenizer_config.json, else of
    /// special_tokens_map.json.
    std::vector<std::pair<std::string, std::string>> named_tokens() const;

    /// How its weights are opened.
    WeightsRequest weights() const;

  private:
    friend ModelFolder open_model_folder(const std::string& folder);
    std::filesystem::path beside_;  // where tokenizer.json lies, and the files that go with it
};

/// Throws Error naming the folder or file: there is neither config.json nor a checkpoint, or one cannot be read.
ModelFolder open_model_folder(const std::string& folder);

}  // namespace coda
