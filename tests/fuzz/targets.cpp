#include "tests/fuzz/targets.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "kernels/core/error.h"
#include "src/config/config.h"
#include "src/config/json_file.h"
#include "src/io/evaluation_shard.h"
#include "src/io/safetensors.h"
#include "src/io/token_mask.h"
#include "src/io/tokens.h"

namespace coda::fuzz {

namespace {

std::string text_of(std::span<const std::byte> input) {
    return {reinterpret_cast<const char*>(input.data()), input.size()};
}

void read_all(const StoredTensor& tensor) {
    std::array<float, 64> narrow{};
    std::array<double, 64> wide{};
    for (std::int64_t first = 0; first < tensor.count; first += 64) {
        const auto number = static_cast<std::size_t>(std::min<std::int64_t>(64, tensor.count - first));
        tensor.read(first, std::span(narrow).first(number));
        tensor.read(first, std::span(wide).first(number));
    }
}

}  // namespace

void safetensors(std::span<const std::byte> input) {
    const std::vector<StoredTensor> tensors = parse_safetensors(input, "input");
    const auto end = static_cast<std::int64_t>(input.size());
    std::int64_t next = tensors.empty() ? end : tensors.front().begin;
    std::set<std::string> names;
    for (const StoredTensor& tensor : tensors) {
        promise(names.insert(tensor.name).second, "a tensor is listed twice");
        promise(tensor.begin == next, "the tensors leave a hole or overlap");
        next += tensor.bytes;
    }
    promise(next == end, "the tensors do not end with the file");
    constexpr std::array<std::string_view, 4> kReadable{"F64", "F32", "F16", "BF16"};
    for (const StoredTensor& tensor : tensors) {
        const bool readable = std::find(kReadable.begin(), kReadable.end(), tensor.dtype) != kReadable.end();
        bool refused = false;
        try {
            read_all(tensor);
        } catch (const Error&) {
            refused = true;
        }
        promise(refused != readable || tensor.count == 0, "a dtype is read that should not be, or the other way round");
    }
}

void shard(std::span<const std::byte> input) {
    const TokenView view = parse_shard(input, "input");
    promise(view.count > 0, "a shard without tokens was accepted");
    promise(view.count * view.bytes_each == static_cast<std::int64_t>(input.size()) - kShardHeaderBytes,
            "the tokens do not end with the file");
    constexpr std::int64_t kVocab = 50257;
    std::array<std::int32_t, 64> tokens{};
    for (std::int64_t first = 0; first < view.count; first += 64) {
        const auto part =
            std::span(tokens).first(static_cast<std::size_t>(std::min<std::int64_t>(64, view.count - first)));
        read_tokens(view, first, part, kVocab, "input");
        for (const std::int32_t token : part)
            promise(token >= 0 && token < kVocab, "an id outside the vocabulary was read");
    }
}

void token_mask(std::span<const std::byte> input) {
    const std::int64_t tokens = mask_tokens(input, static_cast<std::int64_t>(input.size()), "input");
    promise(tokens > 0 && tokens == static_cast<std::int64_t>(input.size()) - kShardHeaderBytes,
            "the mask does not end with the file");
    const std::span mask(reinterpret_cast<const std::uint8_t*>(input.data()) + kShardHeaderBytes,
                         static_cast<std::size_t>(tokens));
    require_mask_bits(mask, 0, "input");
    promise(std::all_of(mask.begin(), mask.end(), [](std::uint8_t byte) { return byte < 4; }),
            "a byte with unknown bits was accepted");
}

void evaluation_shard(std::span<const std::byte> input) {
    constexpr std::int64_t kVocab = 50257, kSeqLen = 64;
    const std::vector<std::int64_t> first_byte = index_evaluation_shard(input, "input", kVocab, kSeqLen);
    promise(!first_byte.empty() && first_byte.front() == kShardHeaderBytes, "the first example follows the header");
    for (std::size_t i = 0; i < first_byte.size(); ++i) {
        const std::int64_t end =
            i + 1 < first_byte.size() ? first_byte[i + 1] : static_cast<std::int64_t>(input.size());
        promise(end - first_byte[i] >= 22 && end % 2 == 0, "an example is too small for two completions");
    }
}

void config(std::span<const std::byte> input) {
    const nlohmann::json document = parse_json_text(text_of(input), "input");
    const nlohmann::json written = to_json(parse_config(document, "input"));
    promise(to_json(parse_config(written, "other")) == written, "a resolved configuration reads as another");
}

void hf_config(std::span<const std::byte> input) {
    const nlohmann::json section = model_section_from_hf(parse_json_text(text_of(input), "input"), "input");
    promise(section.is_object(), "the model section is no object");
    const nlohmann::json run = {
        {"model", section},
        {"data", {{"train", "text.txt"}}},
        {"training", {{"seq_len", 8}, {"micro_batch_size", 1}, {"steps", 1}}},
    };
    const Config first = parse_config(run, "run");
    nlohmann::json again = run;
    again["model"] = model_section_from_hf(to_hf_json(first.model), "exported");
    promise(to_json(parse_config(again, "run")) == to_json(first), "an exported model is imported as another");
}

}  // namespace coda::fuzz
