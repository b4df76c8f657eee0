#include "src/model/parameters.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "src/model/initialise.h"
#include "tests/catch.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

static std::map<std::string, HfTensor> by_name(const ParameterLayout& layout) {
    std::map<std::string, HfTensor> tensors;
    for (const HfTensor& tensor : layout.tensors) tensors[tensor.name] = tensor;
    return tensors;
}

TEST_CASE("every element of every Hugging Face tensor has a place of its own, and the rest is padding") {
    ModelConfig model = tiny_model();
    model.tie_word_embeddings = GENERATE(false, true);
    model.attention_bias = GENERATE(false, true);
    model.qk_norm = !model.attention_bias;
    const ParameterLayout layout = parameter_layout(model);
    std::vector<int> owners(static_cast<std::size_t>(layout.count), 0);
    std::int64_t elements = 0;
    for (const HfTensor& tensor : layout.tensors) {
        for (std::int64_t row = 0; row < tensor.rows; ++row) {
            for (std::int64_t col = 0; col < tensor.cols; ++col) {
                ++owners.at(static_cast<std::size_t>(tensor.row_offset(row) + col));
            }
        }
        elements += tensor.count();
        // Matrices first: they, and only they, decay.
        CHECK((tensor.row_offset(0) < layout.matrix_count) == tensor.is_matrix());
    }
    CHECK(elements == layout.parameters);
    CHECK(std::count(owners.begin(), owners.end(), 1) == elements);
    CHECK(std::count(owners.begin(), owners.end(), 0) == layout.count - elements);
}

namespace {

std::size_t gate_up_of(const Layer::Parameters& layer) { return std::get<MlpBlock::Parameters>(layer.mlp).gate_up; }

}  // namespace

TEST_CASE("the packed row order: rotary pairs adjacent, gate and up interleaved") {
    const ParameterLayout layout = parameter_layout(tiny_model());
    const auto find = [&](const std::string& name) {
        for (const HfTensor& tensor : layout.tensors) {
            if (tensor.name == name) return tensor;
        }
        throw Error("no tensor " + name);
    };
    const Layer::Parameters& layer = layout.layers[1];
    const std::int64_t qkv = layout.matrices[layer.attention.qkv].place.offset;
    const std::int64_t gate_up = layout.matrices[gate_up_of(layer)].place.offset;
    // Head dimension 8: Hugging Face row i + 4 b of a head is packed row 2 i + b; here head 1, i = 3, b = 1.
    CHECK(find("model.layers.1.self_attn.q_proj.weight").row_offset(8 + 7) == qkv + (8 + 7) * 16);
    CHECK(find("model.layers.1.self_attn.q_proj.weight").row_offset(8 + 1) == qkv + (8 + 2) * 16);
    CHECK(find("model.layers.1.self_attn.k_proj.weight").row_offset(4) == qkv + (32 + 1) * 16);
    CHECK(find("model.layers.1.self_attn.v_proj.weight").row_offset(5) == qkv + (32 + 16 + 5) * 16);
    CHECK(find("model.layers.1.mlp.gate_proj.weight").row_offset(3) == gate_up + 6 * 16);
    CHECK(find("model.layers.1.mlp.up_proj.weight").row_offset(3) == gate_up + 7 * 16);
}

TEST_CASE("matrices that follow a norm carry its weight, in order of their place") {
    ModelConfig model = tiny_model();
    model.tie_word_embeddings = GENERATE(false, true);
    const ParameterLayout layout = parameter_layout(model);
    const auto norm_of = [&](const std::string& name) {
        for (const HfTensor& tensor : layout.tensors) {
            if (tensor.name == name) return tensor;
        }
        throw Error("no tensor " + name);
    };
    std::vector<std::pair<PackedTensor, HfTensor>> expected;
    for (std::size_t l = 0; l < layout.layers.size(); ++l) {
        const Layer::Parameters& layer = layout.layers[l];
        const std::string prefix = text("model.layers.", l, ".");
        expected.emplace_back(layout.matrices[layer.attention.qkv].place, norm_of(prefix + "input_layernorm.weight"));
        expected.emplace_back(layout.matrices[gate_up_of(layer)].place,
                              norm_of(prefix + "post_attention_layernorm.weight"));
    }
    expected.insert(model.tie_word_embeddings ? expected.begin() : expected.end(),
                    {layout.matrices[layout.head.matrix].place, norm_of("model.norm.weight")});
    REQUIRE(layout.folds.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto& [matrix, norm] = expected[i];
        const NormFold& fold = layout.folds[i];
        CHECK(fold.first == matrix.offset);
        CHECK(fold.rows == matrix.rows);
        CHECK(fold.cols == matrix.cols);
        CHECK(fold.gamma == norm.offset);
        if (i > 0) CHECK(fold.first >= layout.folds[i - 1].end());
    }
}

TEST_CASE("an element of a bias lies among the norms, in the order of the matrix' rows") {
    ModelConfig model = tiny_model();
    const ParameterLayout plain = parameter_layout(model);
    model.attention_bias = true;
    const ParameterLayout layout = parameter_layout(model);
    CHECK(layout.matrix_count == plain.matrix_count);
    CHECK(layout.parameters == plain.parameters + 2 * (32 + 16 + 16));
    const std::map<std::string, HfTensor> tensors = by_name(layout);
    for (const WeightMatrix& matrix : layout.matrices) {
        CHECK(matrix.has_bias == (std::string_view(matrix.name) == "qkv"));
        if (!matrix.has_bias) continue;
        CHECK(matrix.bias.offset >= layout.matrix_count);
        CHECK(matrix.bias.count() == matrix.place.rows);
        for (const char* part : {"q", "k", "v"}) {
            const std::string name = text("model.layers.", matrix.layer, ".self_attn.", part, "_proj.");
            const HfTensor &weight = tensors.at(name + "weight"), &bias = tensors.at(name + "bias");
            CHECK(bias.count() == weight.rows);
            for (std::int64_t row = 0; row < weight.rows; ++row)
                CHECK(bias.row_offset(row) - matrix.bias.offset ==
                      (weight.row_offset(row) - matrix.place.offset) / matrix.place.cols);
        }
    }
    model.attention_out_bias = model.mlp_bias = true;
    model.mlp = MlpKind::gelu_tanh;
    const ParameterLayout gelu = parameter_layout(model);
    CHECK(gelu.parameters ==
          layout.parameters - 2 * 16 * model.intermediate_size + 2 * (16 + model.intermediate_size + 16));
    for (const WeightMatrix& matrix : gelu.matrices) CHECK(matrix.has_bias == (matrix.layer >= 0));
    ParameterPlan plan(1024);
    CHECK_THROWS_WITH(plan.matrix({.name = "odd", .place = {8, 4}, .has_bias = true, .tensors = {{"odd", 8}}}),
                      Catch::Contains("odd: the name of a bias"));
}

TEST_CASE("the weights of norms of heads lie among the norms, in the order of a head's rows") {
    ModelConfig model = tiny_model();
    const ParameterLayout plain = parameter_layout(model);
    model.qk_norm = true;
    const ParameterLayout layout = parameter_layout(model);
    CHECK(layout.matrix_count == plain.matrix_count);
    CHECK(layout.parameters == plain.parameters + 2 * (8 + 8));
    const std::map<std::string, HfTensor> tensors = by_name(layout);
    for (std::size_t l = 0; l < 2; ++l) {
        const PackedTensor gain = layout.layers[l].attention.gain.value();
        const PackedTensor& qkv = layout.matrices[layout.layers[l].attention.qkv].place;
        CHECK(gain.offset >= layout.matrix_count);
        CHECK(gain.rows == 2);
        CHECK(gain.cols == 8);
        for (const auto& [part, row] : {std::pair("q", 0), {"k", 1}}) {
            const std::string name = text("model.layers.", l, ".self_attn.", part);
            const HfTensor &norm = tensors.at(name + "_norm.weight"), &first_head = tensors.at(name + "_proj.weight");
            CHECK(norm.count() == 8);
            CHECK(!norm.is_matrix());
            for (std::int64_t i = 0; i < 8; ++i)
                CHECK(norm.row_offset(i) - gain.offset - 8 * row ==
                      (first_head.row_offset(i) - first_head.row_offset(0)) / qkv.cols);
        }
    }
}

TEST_CASE("the matrices of a model by offset, each with its layer") {
    ModelConfig model = tiny_model();
    model.tie_word_embeddings = GENERATE(false, true);
    const ParameterLayout layout = parameter_layout(model);
    std::vector<std::string> names;
    std::int64_t end = 0;
    for (const WeightMatrix& matrix : layout.matrices) {
        names.push_back(text(matrix.name, " ", matrix.layer));
        CHECK(matrix.place.offset >= end);
        end = matrix.place.offset + matrix.place.count();
    }
    CHECK(end <= layout.matrix_count);
    std::vector<std::string> expected{"embedding -1"};
    for (const int l : {0, 1})
        for (const char* name : {"qkv", "attn_out", "gate_up", "down"}) expected.push_back(text(name, " ", l));
    if (!model.tie_word_embeddings) expected.emplace_back("head -1");
    CHECK(names == expected);
}

TEST_CASE("learned positions lie behind the embedding, a row per position") {
    ModelConfig model = tiny_model();
    const ParameterLayout plain = parameter_layout(model);
    model.position_embeddings = PositionEmbeddings::learned;
    model.max_position_embeddings = 50;
    const ParameterLayout layout = parameter_layout(model);
    REQUIRE(layout.embedding.positions);
    const WeightMatrix& positions = layout.matrices.at(*layout.embedding.positions);
    CHECK(positions.place.offset >= layout.embedding_table().count());
    CHECK((positions.place.rows == 50 && positions.place.cols == 16 && !positions.norm));
    CHECK(layout.parameters == plain.parameters + 50 * 16);
    CHECK(layout.tensors.at(1).name == "model.embed_positions.weight");
}

TEST_CASE("a LayerNorm has a bias behind its weight, and no matrix carries the last one") {
    ModelConfig model = tiny_model();
    const ParameterLayout rms = parameter_layout(model);
    model.norm = NormKind::layernorm;
    model.mlp = MlpKind::gelu_tanh;
    const ParameterLayout layout = parameter_layout(model);
    REQUIRE(layout.head.final_norm);
    CHECK(!rms.head.final_norm);
    for (const WeightMatrix& matrix : layout.matrices) {
        const std::string name = matrix.name;
        INFO(name);
        CHECK((name == "qkv" || name == "up") == (matrix.norm && matrix.norm->bias));
        CHECK((name == "attn_out" || name == "down") == matrix.centred);
        if (matrix.norm) CHECK(matrix.norm->bias->offset >= matrix.norm->weight.offset + 16);
    }
    const auto biases = std::count_if(layout.tensors.begin(), layout.tensors.end(), [](const HfTensor& tensor) {
        return tensor.kind == HfTensor::Kind::bias && tensor.name.ends_with("norm.bias") && tensor.rows == 1 &&
               tensor.cols == 16;
    });
    CHECK(biases == 2 * model.num_hidden_layers + 1);
}

TEST_CASE("parameter counts of the known models") {
    ModelConfig model = llama1b_untied();
    CHECK(parameter_layout(model).parameters == 1498482688);
    model.tie_word_embeddings = true;
    CHECK(parameter_layout(model).parameters == 1235814400);  // Llama-3.2-1B
    model = {};
    model.hidden_size = 4096;
    model.intermediate_size = 14336;
    model.num_hidden_layers = 32;
    model.num_attention_heads = 32;
    model.num_key_value_heads = 8;
    model.head_dim = 128;
    model.vocab_size = 128256;
    CHECK(parameter_layout(model).parameters == 8030261248);  // Llama-3.1-8B
}

TEST_CASE("initial weights: normal matrices of the given deviation, norms of 1, biases and padding of 0") {
    ModelConfig model = tiny_model();
    model.attention_bias = GENERATE(false, true);
    model.qk_norm = !model.attention_bias;
    model.hidden_size = 64;
    model.intermediate_size = 200;
    const ParameterLayout layout = parameter_layout(model);
    std::vector<float> master(static_cast<std::size_t>(layout.count), -1.0f);
    InitialWeights(model, layout, 11).read(0, master);

    double sum = 0, squares = 0, fourth = 0;
    std::int64_t n = 0;
    std::vector<bool> used(master.size(), false);
    for (const HfTensor& tensor : layout.tensors) {
        for (std::int64_t row = 0; row < tensor.rows; ++row) {
            for (std::int64_t col = 0; col < tensor.cols; ++col) {
                const auto at = static_cast<std::size_t>(tensor.row_offset(row) + col);
                used[at] = true;
                if (!tensor.is_matrix()) {
                    CHECK(master[at] == (tensor.kind == HfTensor::Kind::bias ? 0.0f : 1.0f));
                    continue;
                }
                const double value = master[at] / model.initializer_range;
                sum += value;
                squares += value * value;
                fourth += value * value * value * value;
                ++n;
            }
        }
    }
    for (std::size_t i = 0; i < master.size(); ++i) {
        if (!used[i]) CHECK(master[i] == 0.0f);
    }
    // Five standard errors of mean, variance and fourth moment of n standard normal values.
    const auto count = static_cast<double>(n);
    CHECK(std::abs(sum / count) < 5 / std::sqrt(count));
    CHECK(std::abs(squares / count - 1) < 5 * std::sqrt(2 / count));
    CHECK(std::abs(fourth / count - 3) < 5 * std::sqrt(96 / count));

    std::vector<float> again(master.size()), other(master.size());
    InitialWeights(model, layout, 11).read(0, again);
    InitialWeights(model, layout, 12).read(0, other);
    CHECK(again == master);
    CHECK(other != master);
}

// 1/sqrt(2 L) of two layers is 1/2 to the bit; the tensors before the first layer's norms have the same numbers.
TEST_CASE("with LayerNorm, the matrices that end a residual branch begin with 1/sqrt(2 L) of the deviation") {
    ModelConfig model = tiny_model();
    model.num_hidden_layers = 2;
    model.mlp = MlpKind::gelu_tanh;
    const ParameterLayout plain_layout = parameter_layout(model);
    model.norm = NormKind::layernorm;
    const ParameterLayout layout = parameter_layout(model);
    model.norm = NormKind::rmsnorm;
    const InitialWeights plain(model, plain_layout, 11), halved(model, layout, 11);
    int ends = 0;
    for (std::size_t t = 0; layout.tensors[t].is_matrix(); ++t) {
        const HfTensor& tensor = layout.tensors[t];
        REQUIRE(plain_layout.tensors[t].name == tensor.name);
        const bool ends_branch =
            tensor.name.ends_with("self_attn.o_proj.weight") || tensor.name.ends_with("mlp.down_proj.weight");
        ends += ends_branch ? 1 : 0;
        std::vector<float> before(static_cast<std::size_t>(tensor.cols)), now = before;
        for (std::int64_t row = 0; row < tensor.rows; ++row) {
            plain.read_row(t, row, before);
            halved.read_row(t, row, now);
            for (std::size_t i = 0; i < now.size(); ++i) {
                if (now[i] != (ends_branch ? 0.5f : 1.0f) * before[i]) FAIL(tensor.name << " row " << row);
            }
        }
    }
    CHECK(ends == 2);
}

// The embedding is the first tensor in both; rows of 15 and of 9 begin at odd elements, within a pair of normal values.
TEST_CASE("an initial weight depends only on the seed, its tensor and its place in it") {
    const auto embedding = [](std::int64_t vocab, std::int64_t width) {
        ModelConfig model = tiny_model();
        model.vocab_size = vocab;
        model.hidden_size = width;
        const ParameterLayout layout = parameter_layout(model);
        std::vector<float> master(static_cast<std::size_t>(layout.count));
        InitialWeights(model, layout, 11).read(0, master);
        master.resize(static_cast<std::size_t>(vocab * width));
        return master;
    };
    CHECK(embedding(6, 15) == embedding(10, 9));
    CHECK(embedding(6, 15) == embedding(9, 10));
}

// Parts that begin and end within rows and pairs, and reach over tensors and padding.
TEST_CASE("initial weights read in parts or by rows are those read at once") {
    ModelConfig model = tiny_model();
    model.hidden_size = 15;
    model.tie_word_embeddings = GENERATE(false, true);
    model.attention_bias = true;
    const ParameterLayout layout = parameter_layout(model);
    const InitialWeights weights(model, layout, 11);
    std::vector<float> whole(static_cast<std::size_t>(layout.count), -1.0f);
    weights.read(0, whole);
    for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{250}, whole.size() - 1}) {
        std::vector<float> parts(whole.size(), -1.0f);
        for (std::size_t first = 0; first < parts.size(); first += size) {
            weights.read(static_cast<std::int64_t>(first),
                         std::span(parts).subspan(first, std::min(size, parts.size() - first)));
        }
        CHECK(parts == whole);
    }
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        const HfTensor& tensor = layout.tensors[t];
        std::vector<float> row(static_cast<std::size_t>(tensor.cols));
        for (std::int64_t r = 0; r < tensor.rows; ++r) {
            weights.read_row(t, r, row);
            CHECK(std::equal(row.begin(), row.end(), whole.begin() + tensor.row_offset(r)));
        }
    }
}
