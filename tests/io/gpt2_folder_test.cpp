// Folders of model_type gpt2, whose files have other tensors than the layout: q, k and v as one, and the layers'
// matrices transposed.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/config/json_file.h"
#include "src/io/files.h"
#include "src/io/hf.h"
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

constexpr std::int64_t kWidth = 24, kFfn = 40, kPositions = 32;

/// Four heads of 6, so that the rotate-half order is not its own inverse.
ModelConfig small_gpt2() {
    ModelConfig model = coda::test::tiny_model();
    model.hidden_size = kWidth;
    model.intermediate_size = kFfn;
    model.num_key_value_heads = model.num_attention_heads;
    model.head_dim = 6;
    model.vocab_size = 70;
    model.max_position_embeddings = kPositions;
    model.tie_word_embeddings = true;
    model.norm = NormKind::layernorm;
    model.position_embeddings = PositionEmbeddings::learned;
    model.mlp = MlpKind::gelu_tanh;
    model.attention_bias = model.attention_out_bias = model.mlp_bias = true;
    return model;
}

/// Every element is its own place in the segment, which is exact in fp32; padding is 0.
std::vector<float> numbered(const ParameterLayout& layout) {
    std::vector<float> master(static_cast<std::size_t>(layout.count));
    for (const HfTensor& tensor : layout.tensors)
        for (std::int64_t row = 0; row < tensor.rows; ++row)
            for (std::int64_t i = 0; i < tensor.cols; ++i)
                master[static_cast<std::size_t>(tensor.row_offset(row) + i)] =
                    static_cast<float>(tensor.row_offset(row) + i);
    return master;
}

struct Exported {
    explicit Exported(const ModelConfig& of) : model(of) {
        export_weights(folder.path(), model, layout, HostWeights(layout, master), ExportDtype::float32);
    }
    std::vector<float> imported() const {
        std::vector<float> read(master.size(), -1.0f);
        HfWeights(folder.path(), model, layout).read(0, read);
        return read;
    }
    /// Writes the folder's tensors again as `edit` leaves them.
    template <class Edit>
    void rewrite(const Edit& edit) const {
        std::map<std::string, std::vector<float>> values;
        std::map<std::string, std::vector<std::int64_t>> shapes;
        {
            const SafetensorsFolder checkpoint(folder.path());
            for (const auto& [name, tensor] : checkpoint.tensors()) {
                shapes[name] = tensor.shape;
                values[name].resize(static_cast<std::size_t>(tensor.count));
                tensor.read(0, std::span(values[name]));
            }
        }
        edit(shapes, values);
        std::vector<TensorSpec> specs;
        for (const auto& [name, shape] : shapes) specs.push_back({name, shape});
        write_floats(folder.path() / "model.safetensors", specs, "F32",
                     [&](std::size_t t, std::int64_t row, std::span<float> out) {
                         const std::vector<float>& all = values.at(specs[t].name);
                         std::copy_n(all.begin() + row * static_cast<std::int64_t>(out.size()), out.size(),
                                     out.begin());
                     });
    }
    std::string refusal() const {
        return message_of([&] { imported(); });
    }

    ModelConfig model;
    ScratchFolder folder;
    ParameterLayout layout = parameter_layout(model);
    std::vector<float> master = numbered(layout);
};

float element(const SafetensorsFolder& checkpoint, const std::string& name, std::int64_t at) {
    float value = 0;
    checkpoint.tensors().at(name).read(at, std::span(&value, 1));
    return value;
}

}  // namespace

TEST_CASE("an exported gpt2 has the tensors of GPT2LMHeadModel, and no others") {
    const Exported exported(small_gpt2());
    std::map<std::string, std::vector<std::int64_t>> expected = {{"transformer.wte.weight", {70, kWidth}},
                                                                 {"transformer.wpe.weight", {kPositions, kWidth}},
                                                                 {"transformer.ln_f.weight", {kWidth}},
                                                                 {"transformer.ln_f.bias", {kWidth}}};
    for (const std::string layer : {"transformer.h.0.", "transformer.h.1."}) {
        for (const auto& [module, in, out] : {std::tuple("attn.c_attn", kWidth, 3 * kWidth),
                                              {"attn.c_proj", kWidth, kWidth},
                                              {"mlp.c_fc", kWidth, kFfn},
                                              {"mlp.c_proj", kFfn, kWidth}}) {
            expected[layer + module + ".weight"] = {in, out};
            expected[layer + module + ".bias"] = {out};
        }
        for (const char* norm : {"ln_1", "ln_2"})
            expected[layer + norm + ".weight"] = expected[layer + norm + ".bias"] = {kWidth};
    }
    const SafetensorsFolder checkpoint(exported.folder.path());
    std::map<std::string, std::vector<std::int64_t>> found;
    for (const auto& [name, tensor] : checkpoint.tensors()) found[name] = tensor.shape;
    CHECK(found == expected);
    CHECK(read_json_file((exported.folder.path() / "config.json").string())["model_type"] == "gpt2");

    ModelConfig untied = small_gpt2();
    untied.tie_word_embeddings = false;
    const Exported other(untied);
    const SafetensorsFolder with_head(other.folder.path());
    CHECK(with_head.tensors().at("lm_head.weight").shape == std::vector<std::int64_t>{70, kWidth});
    CHECK(with_head.tensors().size() == expected.size() + 1);
}

TEST_CASE("an exported gpt2's matrices are (in, out), with q, k and v along the columns of c_attn") {
    const Exported exported(small_gpt2());
    const SafetensorsFolder checkpoint(exported.folder.path());
    const ParameterLayout& layout = exported.layout;
    const std::string prefix = "transformer.h.1.";
    const AttentionBlock::Parameters& attention = layout.layers[1].attention;
    const auto& mlp = std::get<GeluMlpBlock::Parameters>(layout.layers[1].mlp);
    const auto of = [&](std::size_t matrix, std::int64_t row, std::int64_t col) {
        const PackedTensor& place = layout.matrices[matrix].place;
        return static_cast<float>(place.offset + row * place.cols + col);
    };
    // Heads of 6: a head's rotate-half pair (1, 4) is the packed pair (2, 3). Keys follow 24 rows of q, values 48.
    for (const auto& [column, packed] : {std::pair(0, 0),
                                         {6 + 1, 6 + 2},
                                         {6 + 4, 6 + 3},
                                         {24 + 1, 24 + 2},
                                         {24 + 18 + 5, 24 + 18 + 5},
                                         {48 + 1, 48 + 1},
                                         {48 + 4, 48 + 4}}) {
        INFO("column " << column);
        for (const std::int64_t in : {0, 7, 23}) {
            CHECK(element(checkpoint, prefix + "attn.c_attn.weight", in * 72 + column) ==
                  of(attention.qkv, packed, in));
        }
        CHECK(element(checkpoint, prefix + "attn.c_attn.bias", column) ==
              static_cast<float>(layout.matrices[attention.qkv].bias.offset + packed));
    }
    CHECK(element(checkpoint, prefix + "attn.c_proj.weight", 5 * kWidth + 17) == of(attention.out, 17, 5));
    CHECK(element(checkpoint, prefix + "mlp.c_fc.weight", 5 * kFfn + 37) == of(mlp.up, 37, 5));
    CHECK(element(checkpoint, prefix + "mlp.c_proj.weight", 37 * kWidth + 5) == of(mlp.down, 5, 37));
    CHECK(element(checkpoint, prefix + "mlp.c_proj.bias", 11) ==
          static_cast<float>(layout.matrices[mlp.down].bias.offset + 11));
    CHECK(element(checkpoint, "transformer.wpe.weight", 31 * kWidth + 3) == of(*layout.embedding.positions, 31, 3));
    CHECK(element(checkpoint, prefix + "ln_1.bias", 3) ==
          static_cast<float>(layout.matrices[attention.qkv].norm.value().bias.value().offset + 3));
}

TEST_CASE("an exported gpt2 is imported with the same bits, whole, in parts and by rows") {
    ModelConfig model = small_gpt2();
    model.tie_word_embeddings = GENERATE(false, true);
    const Exported exported(model);
    const std::vector<float>& master = exported.master;
    CHECK(exported.imported() == master);
    const HfWeights weights(exported.folder.path(), model, exported.layout);
    for (const std::size_t size : {std::size_t{5}, std::size_t{333}, master.size() - 1}) {
        std::vector<float> parts(master.size(), -1.0f);
        for (std::size_t first = 0; first < parts.size(); first += size)
            weights.read(static_cast<std::int64_t>(first),
                         std::span(parts).subspan(first, std::min(size, parts.size() - first)));
        CHECK(parts == master);
    }
    // Backwards, so that every row is of another matrix than the one before it.
    std::int64_t longest = 0;
    for (const HfTensor& tensor : exported.layout.tensors) longest = std::max(longest, tensor.rows);
    for (std::int64_t r = longest - 1; r >= 0; --r) {
        for (std::size_t t = exported.layout.tensors.size(); t-- > 0;) {
            const HfTensor& tensor = exported.layout.tensors[t];
            if (r >= tensor.rows) continue;
            std::vector<float> row(static_cast<std::size_t>(tensor.cols));
            weights.read_row(t, r, row);
            if (!std::equal(row.begin(), row.end(), master.begin() + tensor.row_offset(r)))
                FAIL(tensor.name << " row " << r);
        }
    }
}

TEST_CASE("a gpt2's folder may lack the prefix of names, and have masks and the tied head again") {
    const Exported exported(small_gpt2());
    exported.rewrite([](auto& shapes, auto& values) {
        auto old_shapes = std::exchange(shapes, {});
        auto old_values = std::exchange(values, {});
        for (const auto& [name, shape] : old_shapes) {
            const std::string bare = name.substr(std::string("transformer.").size());
            shapes[bare] = shape;
            values[bare] = old_values[name];
        }
        shapes["h.0.attn.bias"] = {1, 1, 2, 2};
        values["h.0.attn.bias"] = {1, 0, 1, 1};
        shapes["h.0.attn.masked_bias"] = {1};
        values["h.0.attn.masked_bias"] = {-1e4f};
        shapes["lm_head.weight"] = shapes["wte.weight"];
        values["lm_head.weight"] = values["wte.weight"];
    });
    CHECK(exported.imported() == exported.master);
    exported.rewrite([](auto&, auto& values) { values["lm_head.weight"].back() += 1; });
    CHECK(contains(exported.refusal(), "lm_head.weight differs from wte.weight"));
}

TEST_CASE("tensors that do not fit a gpt2 are named as its files have them") {
    const Exported exported(small_gpt2());
    exported.rewrite([](auto& shapes, auto&) {
        shapes["transformer.h.0.attn.c_attn.weight"] = {3 * kWidth, kWidth};  // as a Linear has it
        shapes.erase("transformer.h.1.ln_2.bias");
        shapes.erase("transformer.wpe.weight");
    });
    const std::string message = exported.refusal();
    INFO(message);
    CHECK(contains(message, "2 missing: transformer.wpe.weight, transformer.h.1.ln_2.bias"));
    CHECK(contains(message, "transformer.h.0.attn.c_attn.weight [72, 24] for [24, 72]"));
}

TEST_CASE("the matrices of a gpt2 are not written as 4-bit integers") {
    ModelConfig model = small_gpt2();
    const ScratchFolder folder;
    const ParameterLayout layout = parameter_layout(model);
    const std::string message = message_of([&] {
        export_weights(folder.path() / "out", model, layout, HostWeights(layout, numbered(layout)), ExportDtype::int4);
    });
    CHECK(contains(message, "--export-dtype int4: transformer.h.0.attn.c_attn.weight is stored transposed"));
    CHECK_FALSE(fs::exists(folder.path() / "out"));
}

TEST_CASE("transformers loads a gpt2 that we export and we import what it saves", "[interop]") {
    const ScratchFolder folder;
    const ModelConfig model = small_gpt2();
    const ParameterLayout layout = parameter_layout(model);
    // Element i of the t-th tensor by name, as in the script: exact in bf16 and fp16.
    const FileTensors files = file_tensors(model, layout);
    std::map<std::string, const FileTensor*> by_name;
    for (const FileTensor& file : files.tensors) by_name[file.name] = &file;
    std::vector<float> master(static_cast<std::size_t>(layout.count));
    std::int64_t t = 0;
    for (const auto& [name, file] : by_name) {
        for (std::int64_t i = 0; i < file->rows * file->cols; ++i) {
            std::int64_t row = file->transposed ? i % file->rows : i / file->cols;
            const std::int64_t col = file->transposed ? i / file->rows : i % file->cols;
            auto part = file->parts.begin();
            for (; row >= layout.tensors[*part].rows; ++part) row -= layout.tensors[*part].rows;
            const std::int64_t at = layout.tensors[*part].row_offset(row) + col;
            master[static_cast<std::size_t>(at)] = static_cast<float>((7 * i + 3 * t) % 256 - 128) / 16;
        }
        ++t;
    }
    std::string exported = "export";
    for (const ExportDtype dtype : {ExportDtype::float32, ExportDtype::bfloat16}) {
        const fs::path out = folder.path() / (dtype == ExportDtype::float32 ? "f32" : "bf16");
        export_weights(out, model, layout, HostWeights(layout, master), dtype, 9000);
        exported += " " + out.string();
    }
    if (!run_interop(exported)) return;
    const fs::path saved = folder.path() / "saved";
    if (!run_interop(text("save gpt2 ", saved.string(), " tied"))) return;
    for (const char* dtype : {"float32", "bfloat16", "float16"}) {
        std::vector<float> read(master.size(), -1.0f);
        HfWeights(saved / dtype, model, layout).read(0, read);
        CHECK(read == master);
    }
}
