// What --model names: a Hugging Face folder, or a run's. Its configuration and the files next to the weights.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "src/config/config.h"
#include "src/engine/weights_source.h"
#include "src/generate/generation_config.h"
#include "src/tokenize/chat/chat_files.h"

namespace coda {

struct ModelFolder {
    std::filesystem::path folder;
    bool run = false;                                // it has checkpoints
    Config config;                                   // of a Hugging Face folder only the model
    std::optional<std::filesystem::path> tokenizer;  // tokenizer.json
    GenerationConfig generation;                     // the end tokens are config.json's where it has none

    /// How its conversations become texts. Throws Error if it has no chat template, or it is no template.
    ChatForm chat_form(std::function<std::string(const std::string& format)> now) const;

    /// How its weights are opened.
    WeightsRequest weights() const;

  private:
    friend ModelFolder open_model_folder(const std::string& folder);
    std::filesystem::path beside_;  // where tokenizer.json lies, and the files that go with it
};

/// Throws Error naming the folder or file: there is neither config.json nor a checkpoint, or one cannot be read.
ModelFolder open_model_folder(const std::string& folder);

}  // namespace coda
