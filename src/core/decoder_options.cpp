#include "src/core/decoder_options.h"

#include "src/core/errors.h"

namespace coda {

DecoderChoice decoder_choice(const std::string& word) {
    if (word == "auto") return DecoderChoice::automatic;
    if (word == "fused") return DecoderChoice::fused;
    if (word == "passes") return DecoderChoice::passes;
    throw UsageError(text("--decoder: expected auto, fused or passes, found \"", word, "\""));
}

}  // namespace coda
