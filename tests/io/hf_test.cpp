#include "src/io/hf.h"
#include "src/config/json_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "src/io/files.h"
#include "src/io/safetensors.h"
#include "tests/catch.h"
#include "tests/io/faults.h"
#include "tests/io/interop.h"
#include "tests/io/scratch_folder.h"
#include "tests/io/write_floats.h"
#include "tests/model/host_weights.h"
#include "tests/tiny_model.h"

using namespace coda;
using coda::test::HostWeights;
using coda::test::write_floats;
namespace fs = std::filesystem;

namespace {

/// Grouped queries, a padded vocabulary (70 to 128), and no two extents alike. safetensors_interop.py has the same
/// model.
ModelConfig small_model(bool tied) {
    ModelConfig model = coda::test::tiny_model();
    model.hidden_size = 24;
    model.intermediate_size = 40;
    model.head_dim = 6;
    model.vocab_size = 70;
    model.rope_theta = 10000;
    model.max_position_embeddings = 32;
    model.tie_word_embeddings = tied;
    return model;
}

/// A segment whose every element is its own index (exact in fp32), with 0 wherever no tensor has an element.
std::vector<float> numbered(const ParameterLayout& layout) {
    std::vector<float> master(static_cast<std::size_t>(layout.count));
    for (const HfTensor& tensor : layout.tensors) {
        for (std::int64_t row = 0; row < tensor.rows; ++row) {
            for (std::int64_t i = 0; i < tensor.cols; ++i) {
                const std::int64_t at = tensor.row_offset(row) + i;
                master[static_cast<std::size_t>(at)] = static_cast<float>(at + 1);
            }
        }
    }
    return master;
}

std::vector<float> imported(const fs::path& folder, const ParameterLayout& layout) {
    std::vector<float> master(static_cast<std::size_t>(layout.count), -1.0f);
    HfWeights(folder, small_model(layout.tied()), layout).read(0, master);
    return master;
}

std::string import_refusal(const fs::path& folder, const ParameterLayout& layout) {
    return message_of([&] { imported(folder, layout); });
}

/// A checkpoint file of the model's tensors as `edit` leaves them; element i of every tensor is i.
template <class Edit>
void write_edited(const fs::path& folder, const ParameterLayout& layout, const Edit& edit,
                  std::string_view dtype = "F32") {
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const HfTensor& tensor : layout.tensors) {
        shapes[tensor.name] = tensor.is_matrix() ? std::vector{tensor.rows, tensor.cols} : std::vector{tensor.count()};
    }
    edit(shapes);
    std::vector<TensorSpec> specs;
    for (const auto& [name, shape] : shapes) specs.push_back({name, shape});
    write_floats(folder / "model.safetensors", specs, dtype, [](std::size_t, std::int64_t row, std::span<float> out) {
        for (std::size_t i = 0; i < out.size(); ++i) {
            out[i] = static_cast<float>(static_cast<std::size_t>(row) * out.size() + i);
        }
    });
}

std::size_t entries(const fs::path& folder) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

/// A folder with a model's numbered weights in fp32.
struct Exported {
    explicit Exported(const ModelConfig& model) : layout(parameter_layout(model)), master(numbered(layout)) {
        export_weights(folder.path(), model, layout, HostWeights(layout, master), ExportDtype::float32);
    }
    ScratchFolder folder;
    ParameterLayout layout;
    std::vector<float> master;
};

}  // namespace

TEST_CASE("an exported checkpoint is imported with the same bits, in one file and in shards") {
    const ScratchFolder folder;
    for (const bool tied : {false, true}) {
        ModelConfig model = small_model(tied);
        model.attention_bias = tied;
        model.qk_norm = !tied;
        const ParameterLayout layout = parameter_layout(model);
        const std::vector<float> master = numbered(layout);
        for (const std::int64_t shard_bytes : {kMaxShardBytes, std::int64_t{9000}}) {
            const fs::path out = folder.path() / text("nested/out-", tied, "-", shard_bytes, "/");
            export_weights(out, model, layout, HostWeights(layout, master), ExportDtype::float32, shard_bytes);
            CHECK(fs::exists(out / "model.safetensors.index.json") == (shard_bytes == 9000));
            const std::vector<float> read = imported(out, layout);
            CHECK(std::memcmp(read.data(), master.data(), master.size() * sizeof(float)) == 0);
        }
    }
    CHECK(entries(folder.path() / "nested") == 4);
}

TEST_CASE("imported weights read in parts or by rows are those read at once") {
    ModelConfig model = small_model(false);
    model.attention_bias = GENERATE(false, true);
    model.qk_norm = !model.attention_bias;
    const Exported exported(model);
    const ScratchFolder& folder = exported.folder;
    const ParameterLayout& layout = exported.layout;
    const std::vector<float>& master = exported.master;
    const HfWeights weights(folder.path(), model, layout);
    for (const std::size_t size : {std::size_t{5}, std::size_t{333}, master.size() - 1}) {
        std::vector<float> parts(master.size(), -1.0f);
        for (std::size_t first = 0; first < parts.size(); first += size) {
            weights.read(static_cast<std::int64_t>(first),
                         std::span(parts).subspan(first, std::min(size, parts.size() - first)));
        }
        CHECK(parts == master);
    }
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        const HfTensor& tensor = layout.tensors[t];
        std::vector<float> row(static_cast<std::size_t>(tensor.cols));
        for (std::int64_t r = 0; r < tensor.rows; ++r) {
            weights.read_row(t, r, row);
            CHECK(std::equal(row.begin(), row.end(), master.begin() + tensor.row_offset(r)));
        }
    }
}

TEST_CASE("bf16 export rounds, and what it rounded is imported exactly") {
    const ScratchFolder folder;
    const ModelConfig model = small_model(true);
    const ParameterLayout layout = parameter_layout(model);
    const std::vector<float> master = numbered(layout);
    export_weights(folder.path(), model, layout, HostWeights(layout, master), ExportDtype::bfloat16);
    const std::vector<float> read = imported(folder.path(), layout);
    for (std::size_t i = 0; i < master.size(); ++i) {
        if (read[i] != float(Bf16(master[i]))) FAIL("element " << i << ": " << read[i] << " for " << master[i]);
    }
    CHECK(read_json_file((folder.path() / "config.json").string())["torch_dtype"] == "bfloat16");
}

TEST_CASE("exported tensors have Hugging Face's row order") {
    const ModelConfig model = small_model(false);
    const Exported exported(model);
    const ScratchFolder& folder = exported.folder;
    const ParameterLayout& layout = exported.layout;
    const std::vector<float>& master = exported.master;
    const SafetensorsFolder checkpoint(folder.path());
    const auto row = [&](const std::string& name, std::int64_t index) {
        std::vector<float> out(24);
        checkpoint.tensors().at(name).read(index * 24, std::span(out));
        return out;
    };
    const auto packed = [&](std::int64_t offset) {
        const auto begin = master.begin() + offset;
        return std::vector<float>(begin, begin + 24);
    };
    // Heads of 6 rows: a head's rotate-half pair (1, 4) is the adjacent pair (2, 3). Keys follow 4 query heads.
    const Layer::Parameters& layer = layout.layers[1];
    const auto offset = [&](std::size_t matrix) { return layout.matrices[matrix].place.offset; };
    CHECK(row("model.layers.1.self_attn.q_proj.weight", 6 + 1) == packed(offset(layer.attention.qkv) + (6 + 2) * 24));
    CHECK(row("model.layers.1.self_attn.q_proj.weight", 6 + 4) == packed(offset(layer.attention.qkv) + (6 + 3) * 24));
    CHECK(row("model.layers.1.self_attn.k_proj.weight", 6 + 5) ==
          packed(offset(layer.attention.qkv) + (24 + 6 + 5) * 24));
    CHECK(row("model.layers.1.self_attn.k_proj.weight", 2) == packed(offset(layer.attention.qkv) + (24 + 4) * 24));
    CHECK(row("model.layers.1.self_attn.v_proj.weight", 11) ==
          packed(offset(layer.attention.qkv) + (24 + 12 + 11) * 24));
    const std::size_t gate_up = std::get<MlpBlock::Parameters>(layer.mlp).gate_up;
    CHECK(row("model.layers.1.mlp.gate_proj.weight", 39) == packed(offset(gate_up) + 78 * 24));
    CHECK(row("model.layers.1.mlp.up_proj.weight", 39) == packed(offset(gate_up) + 79 * 24));
    CHECK(row("lm_head.weight", 69) == packed(offset(layout.head.matrix) + 69 * 24));
    CHECK(checkpoint.tensors().at("model.norm.weight").shape == std::vector<std::int64_t>{24});
    CHECK(checkpoint.tensors().size() == layout.tensors.size());

    const nlohmann::json config = read_json_file((folder.path() / "config.json").string());
    CHECK(config["model_type"] == "llama");
    CHECK(config["vocab_size"] == 70);
    CHECK(config["torch_dtype"] == "float32");
}

TEST_CASE("an exported bias is one row in Hugging Face's order, of a qwen2") {
    ModelConfig model = small_model(true);
    model.attention_bias = true;
    const Exported exported(model);
    const ScratchFolder& folder = exported.folder;
    const ParameterLayout& layout = exported.layout;
    const std::vector<float>& master = exported.master;
    const SafetensorsFolder checkpoint(folder.path());
    const std::int64_t first = layout.matrices[layout.layers[1].attention.qkv].bias.offset;
    // Heads of 6 elements: a head's rotate-half pair (1, 4) is the adjacent pair (2, 3). Keys follow 4 query heads.
    for (const auto& [part, count, element, packed] :
         {std::tuple("q", 24, 6 + 1, 6 + 2), {"q", 24, 6 + 4, 6 + 3}, {"k", 12, 2, 24 + 4}, {"v", 12, 11, 36 + 11}}) {
        const StoredTensor& bias = checkpoint.tensors().at(text("model.layers.1.self_attn.", part, "_proj.bias"));
        CHECK(bias.shape == std::vector<std::int64_t>{count});
        float value = 0;
        bias.read(element, std::span(&value, 1));
        CHECK(value == master[static_cast<std::size_t>(first + packed)]);
    }
    CHECK(read_json_file((folder.path() / "config.json").string())["model_type"] == "qwen2");
}

TEST_CASE("an exported norm of heads is one row in Hugging Face's order, of a qwen3") {
    ModelConfig model = small_model(true);
    model.qk_norm = true;
    const Exported exported(model);
    const SafetensorsFolder checkpoint(exported.folder.path());
    const std::int64_t first = exported.layout.layers[1].attention.gain.value().offset;
    // Heads of 6 elements: the rotate-half pair (1, 4) is the adjacent pair (2, 3). The weights of k follow those of q.
    for (const auto& [part, element, packed] : {std::tuple("q", 1, 2), {"q", 4, 3}, {"k", 2, 6 + 4}, {"k", 5, 6 + 5}}) {
        const StoredTensor& norm = checkpoint.tensors().at(text("model.layers.1.self_attn.", part, "_norm.weight"));
        CHECK(norm.shape == std::vector<std::int64_t>{6});
        float value = 0;
        norm.read(element, std::span(&value, 1));
        CHECK(value == exported.master[static_cast<std::size_t>(first + packed)]);
    }
    CHECK(read_json_file((exported.folder.path() / "config.json").string())["model_type"] == "qwen3");
}

TEST_CASE("missing, unexpected and wrongly shaped tensors are all named in one error") {
    const ScratchFolder folder;
    const ParameterLayout layout = parameter_layout(small_model(false));
    write_edited(folder.path(), layout, [](auto& shapes) {
        shapes.erase("model.norm.weight");
        shapes.erase("model.layers.0.mlp.up_proj.weight");
        shapes["model.layers.2.mlp.up_proj.weight"] = {40, 24};
        shapes["model.layers.1.mlp.down_proj.weight"] = {40, 24};
        shapes["model.layers.1.input_layernorm.weight"] = {24, 1};
    });
    const std::string message = import_refusal(folder.path(), layout);
    INFO(message);
    CHECK(contains(message, folder.path().string()));
    CHECK(contains(message, "2 missing: model.layers.0.mlp.up_proj.weight, model.norm.weight"));
    CHECK(contains(message, "1 unexpected: model.layers.2.mlp.up_proj.weight"));
    CHECK(contains(message, "model.layers.1.mlp.down_proj.weight [40, 24] for [24, 40]"));
    CHECK(contains(message, "model.layers.1.input_layernorm.weight [24, 1] for [24]"));

    write_edited(folder.path(), layout, [](auto& shapes) {
        for (int i = 0; i < 1000; ++i) shapes[text("extra.", 1000 + i)] = {1};
    });
    const std::string many = import_refusal(folder.path(), layout);
    CHECK(contains(many, "1000 unexpected: extra.1000, "));
    CHECK(contains(many, "extra.1009 and 990 more"));
    CHECK(!contains(many, "extra.1010"));
}

TEST_CASE("a tied model takes an lm_head.weight that equals its embedding, and old rotary buffers") {
    const ScratchFolder folder;
    const ParameterLayout layout = parameter_layout(small_model(true));
    write_edited(folder.path(), layout, [](auto& shapes) {
        shapes["lm_head.weight"] = {70, 24};
        shapes["model.layers.0.self_attn.rotary_emb.inv_freq"] = {3};
    });
    const std::vector<float> master = imported(folder.path(), layout);
    CHECK(master[static_cast<std::size_t>(layout.embedding_table().offset) + 70 * 24 - 1] == 70 * 24 - 1);
    for (std::int64_t i = 70 * 24; i < layout.embedding_table().count(); ++i) {
        if (master[static_cast<std::size_t>(layout.embedding_table().offset + i)] != 0)
            FAIL("padding row element " << i);
    }

    std::string file = read_file(folder.path() / "model.safetensors");
    const auto data = parse_safetensors(bytes_of(file), "f");
    for (const StoredTensor& tensor : data) {
        if (tensor.name == "lm_head.weight") {  // its last element changes
            const std::int64_t at = tensor.begin + tensor.bytes - 4;
            const float other = -1;
            std::memcpy(&file[static_cast<std::size_t>(at)], &other, sizeof other);
        }
    }
    replace_file(folder.path() / "model.safetensors", bytes_of(file));
    CHECK(contains(import_refusal(folder.path(), layout), "lm_head.weight differs from model.embed_tokens.weight"));

    // To an untied model the same file is valid.
    CHECK(import_refusal(folder.path(), parameter_layout(small_model(false))).empty());
    write_edited(folder.path(), layout, [](auto&) {});
    CHECK(contains(import_refusal(folder.path(), parameter_layout(small_model(false))), "1 missing: lm_head.weight"));
}

TEST_CASE("an export overwrites nothing") {
    const ScratchFolder folder;
    const ModelConfig model = small_model(true);
    const ParameterLayout layout = parameter_layout(model);
    const std::vector<float> master = numbered(layout);
    const fs::path out = folder.path() / "out";
    const auto refusal = [&] {
        return message_of(
            [&] { export_weights(out, model, layout, HostWeights(layout, master), ExportDtype::float32); });
    };

    std::ofstream(out) << "a file";
    CHECK(contains(refusal(), "not a folder"));
    fs::remove(out);
    fs::create_directory(out);
    std::ofstream(out / "notes.txt") << "kept";
    CHECK(contains(refusal(), "not empty"));
    CHECK(contains(message_of([&] { check_export_folder(out); }), "not empty"));
    CHECK(entries(out) == 1);
    fs::remove(out / "notes.txt");
    fs::create_directory(out.string() + ".partial");  // as a killed export leaves it
    std::ofstream(out.string() + ".partial/model-00001-of-00009.safetensors") << "torn";
    CHECK(refusal().empty());
    CHECK(entries(out) == 2);
    CHECK(entries(folder.path()) == 1);
}

TEST_CASE("an export in which any system call fails leaves nothing half-written") {
    const ModelConfig model = small_model(true);
    const ParameterLayout layout = parameter_layout(model);
    const std::vector<float> master = numbered(layout);
    std::int64_t call = 0;
    for (bool failed = true; failed; ++call) {
        const ScratchFolder folder;
        const fs::path out = folder.path() / "out";
        std::string message;
        {
            Faults faults;
            faults.fail_at(call, ENOSPC);
            message = message_of(
                [&] { export_weights(out, model, layout, HostWeights(layout, master), ExportDtype::float32, 9000); });
        }
        INFO("call " << call << ": " << message);
        failed = !message.empty();
        if (failed) CHECK(contains(message, folder.path().string()));
        if (fs::exists(out)) CHECK(imported(out, layout) == master);
        CHECK(entries(folder.path()) == (fs::exists(out) ? 1 : 0));
    }
    CHECK(call > 20);
}

TEST_CASE("config.json of a checkpoint folder is read or refused") {
    const ScratchFolder folder;
    const auto refusal = [](const fs::path& path) {
        return message_of([&] { model_section_from_hf_folder(path.string()); });
    };
    CHECK(contains(refusal(folder.path() / "absent"), "no such folder"));
    CHECK(contains(refusal(folder.path()), "config.json"));
    std::ofstream(folder.path() / "config.json") << "{\"a\": ";
    CHECK(contains(refusal(folder.path()), "config.json:1:"));
    std::ofstream(folder.path() / "config.json") << "[]";
    CHECK(contains(refusal(folder.path()), "expected an object"));
    std::ofstream(folder.path() / "config.json") << R"({"model_type": "llama"})";
    CHECK(contains(refusal(folder.path()), "missing key"));
}

TEST_CASE("transformers loads what we export and we import what it saves", "[interop]") {
    const ScratchFolder folder;
    for (const bool tied : {false, true}) {
        const ModelConfig model = small_model(tied);
        const ParameterLayout layout = parameter_layout(model);
        // Element i of the t-th tensor by name, as in the script: exact in bf16 and fp16.
        std::map<std::string, const HfTensor*> by_name;
        for (const HfTensor& tensor : layout.tensors) by_name[tensor.name] = &tensor;
        std::vector<float> master(static_cast<std::size_t>(layout.count));
        std::int64_t t = 0;
        for (const auto& [name, tensor] : by_name) {
            for (std::int64_t i = 0; i < tensor->count(); ++i) {
                const std::int64_t at = tensor->row_offset(i / tensor->cols) + i % tensor->cols;
                master[static_cast<std::size_t>(at)] = static_cast<float>((7 * i + 3 * t) % 256 - 128) / 16;
            }
            ++t;
        }

        std::string exported = "export";
        for (const ExportDtype dtype : {ExportDtype::float32, ExportDtype::bfloat16}) {
            for (const std::int64_t shard_bytes : {kMaxShardBytes, std::int64_t{9000}}) {
                const char* name = dtype == ExportDtype::float32 ? "f32" : "bf16";
                const fs::path out = folder.path() / text("out-", tied, "-", name, "-", shard_bytes);
                export_weights(out, model, layout, HostWeights(layout, master), dtype, shard_bytes);
                exported += text(" ", out.string());
            }
        }
        if (!run_interop(exported)) return;

        const fs::path saved = folder.path() / text("saved-", tied);
        if (!run_interop(text("save llama ", saved.string(), tied ? " tied" : " untied"))) return;
        for (const char* dtype : {"float32", "bfloat16", "float16"}) CHECK(imported(saved / dtype, layout) == master);
    }
}
