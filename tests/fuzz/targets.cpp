#include "tests/fuzz/targets.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include "kernels/core/error.h"
#include "src/config/config.h"
#include "src/config/json_file.h"
#include "src/io/safetensors.h"
#include "src/io/tokens.h"

namespace coda::fuzz {

namespace {

void promise(bool kept, const char* what) {
    if (!kept) throw std::logic_error(what);
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
    const std::byte* next = tensors.empty() ? input.data() + input.size() : tensors.front().bytes.data();
    std::set<std::string> names;
    for (const StoredTensor& tensor : tensors) {
        promise(names.insert(tensor.name).second, "a tensor is listed twice");
        promise(tensor.bytes.data() == next, "the tensors leave a hole or overlap");
        next += tensor.bytes.size();
    }
    promise(next == input.data() + input.size(), "the tensors do not end with the file");
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

void config(std::span<const std::byte> input) {
    const std::string content(reinterpret_cast<const char*>(input.data()), input.size());
    const nlohmann::json document = parse_json_text(content, "input");
    try {
        const nlohmann::json section = model_section_from_hf(document, "input");
        promise(section.is_object(), "the model section is no object");
    } catch (const Error&) {  // most configurations are not Hugging Face's; they are still read as ours
    }
    const nlohmann::json written = to_json(parse_config(document, "input"));
    promise(to_json(parse_config(written, "other")) == written, "a resolved configuration reads as another");
}

}  // namespace coda::fuzz
