// The files that an exported folder has next to its weights.
#include "src/io/export_files.h"

#include <nlohmann/json.hpp>

#include "src/io/files.h"
#include "src/io/text_marks.h"
#include "tests/catch.h"
#include "tests/io/test_files.h"
#include "tests/tiny_model.h"

using namespace coda;
using nlohmann::json;
using Tokens = std::vector<std::int32_t>;
namespace fs = std::filesystem;

namespace {

class Folder {
  public:
    Folder() { model.max_position_embeddings = 99; }

    void tokenizer(const json& post_processor, const json& more = json::object()) {
        json added = json::array();
        for (const auto& [id, content] : {std::pair(1, "<s>"), {2, "</s>"}}) {
            added.push_back({{"id", id}, {"content", content}});
        }
        json document = {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}}},
                         {"added_tokens", added},
                         {"post_processor", post_processor}};
        document.update(more);
        put(path("tokenizer.json"), document.dump());
    }
    fs::path path(const std::string& name) const { return scratch.path() / name; }
    json read(const std::string& name) const { return json::parse(read_file(path(name))); }
    bool has(const std::string& name) const { return fs::exists(path(name)); }
    Tokens begin() const { return TokenizerFiles(path("tokenizer.json")).template_begin(); }

    ScratchFolder scratch;
    ModelConfig model = test::tiny_model();
};

}  // namespace

TEST_CASE_METHOD(Folder, "a tokenizer of the run's own gets its first token, and files that name the ends") {
    model.bos_token_id = 1;
    model.eos_token_id = {2, 1};
    tokenizer({{"type", "ByteLevel"}});
    complete_export(scratch.path(), model);
    CHECK(begin() == Tokens{1});
    const json post = read("tokenizer.json")["post_processor"];
    CHECK(post["type"] == "Sequence");
    CHECK(post["processors"][0]["type"] == "ByteLevel");
    CHECK(post["processors"][1]["pair"].size() == 4);
    CHECK(post["processors"][1]["special_tokens"]["<s>"]["ids"] == json{1});
    CHECK(read("tokenizer_config.json") == json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                {"bos_token", "<s>"},
                                                {"eos_token", "</s>"},
                                                {"pad_token", "</s>"},
                                                {"clean_up_tokenization_spaces", false},
                                                {"model_max_length", 99}});
    CHECK(read("generation_config.json") == json{{"bos_token_id", 1}, {"eos_token_id", {2, 1}}, {"pad_token_id", 2}});
}

TEST_CASE_METHOD(Folder, "what the run has stays, bit for bit, where all readers agree on it") {
    model.bos_token_id = 2;
    model.eos_token_id = {2};
    json given = {{"type", "TemplateProcessing"},
                  {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}}}}}},
                  {"pair", json::array()},
                  {"special_tokens", {{"<s>", {{"ids", {1}}}}}}};
    tokenizer(given);
    put(path("tokenizer_config.json"), R"({"bos_token":"<s>","chat_template":"{{ 1 }}"})");
    put(path("generation_config.json"), R"({"eos_token_id":[1],"top_k":5})");
    const std::string before = read_file(path("tokenizer.json"));
    complete_export(scratch.path(), model);
    CHECK(read_file(path("tokenizer.json")) == before);
    CHECK(read("generation_config.json") == json{{"eos_token_id", {2}}, {"top_k", 5}});  // the model's ends
    CHECK(read_file(path("chat_template.jinja")) == "{{ 1 }}");

    put(path("chat_template.jinja"), "{{ 2 }}");
    complete_export(scratch.path(), model);
    CHECK(read_file(path("chat_template.jinja")) == "{{ 2 }}");
}

TEST_CASE_METHOD(Folder, "truncation and padding become null, and a class's own first token goes into the template") {
    tokenizer(nullptr, {{"truncation", {{"max_length", 5}}}, {"padding", {{"pad_id", 0}}}});
    put(path("tokenizer_config.json"), R"({"tokenizer_class":"LlamaTokenizerFast","add_bos_token":true})");
    complete_export(scratch.path(), model);
    const json written = read("tokenizer.json");
    CHECK(written["truncation"].is_null());
    CHECK(written["padding"].is_null());
    CHECK(begin() == Tokens{1});
    CHECK_FALSE(has("generation_config.json"));

    put(path("tokenizer_config.json"), R"({"tokenizer_class":"LlamaTokenizerFast","add_bos_token":false})");
    complete_export(scratch.path(), model);
    CHECK(begin().empty());
}

TEST_CASE_METHOD(Folder, "add_bos_token says how texts begin, also where only the template decides") {
    const json single = {{"type", "TemplateProcessing"},
                         {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                         {"special_tokens", {{"<s>", {{"ids", {1}}}}}}};
    for (const bool has_template : {true, false}) {
        tokenizer(has_template ? single : json());
        for (const bool given : {true, false}) {
            const json settings = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_bos_token", given}};
            put(path("tokenizer_config.json"), settings.dump());
            complete_export(scratch.path(), model);
            CHECK(read("tokenizer_config.json")["add_bos_token"] == has_template);
        }
    }
}

TEST_CASE_METHOD(Folder, "without a tokenizer there are only the end tokens") {
    model.eos_token_id = {3, 4};
    complete_export(scratch.path(), model);
    CHECK(read("generation_config.json")["eos_token_id"] == json{3, 4});
    CHECK_FALSE(has("tokenizer_config.json"));
    CHECK_FALSE(has("tokenizer.json"));
}
