// The rule of what begins a text, row by row, and the marks of documents.
#include "src/io/text_marks.h"

#include <map>

#include "src/core/errors.h"
#include "tests/catch.h"
#include "tests/io/test_files.h"

using namespace coda;
using Catch::Contains;
using nlohmann::json;
using Tokens = std::vector<std::int32_t>;

namespace {

json template_of(const std::vector<std::string>& before, const std::vector<std::string>& after = {}) {
    const std::map<std::string, int> ids{{"<s>", 1}, {"</s>", 2}, {"<x>", 3}};
    json single = json::array(), special = json::object();
    const auto put_token = [&](const std::string& name) {
        single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
        special[name] = {{"id", name}, {"ids", {ids.at(name)}}, {"tokens", {name}}};
    };
    for (const std::string& name : before) put_token(name);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    for (const std::string& name : after) put_token(name);
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", json::array()}, {"special_tokens", special}};
}

/// A folder with a tokenizer of the tokens <s> 1, </s> 2 and <x> 3.
class Folder {
  public:
    explicit Folder(const json& post_processor = nullptr, const json& settings = nullptr,
                    const std::string& name = "tokenizer.json") {
        json added = json::array();
        for (const auto& [id, content] : {std::pair(1, "<s>"), {2, "</s>"}, {3, "<x>"}}) {
            added.push_back({{"id", id}, {"content", content}});
        }
        const json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}}},
                                {"added_tokens", added},
                                {"post_processor", post_processor}};
        put(scratch_.path() / name, tokenizer.dump());
        if (!settings.is_null()) put(scratch_.path() / "tokenizer_config.json", settings.dump());
        files.emplace(scratch_.path() / name);
    }

    TextStart start(const TextStartOptions& options = {}) const { return text_start(&*files, options); }

  private:
    ScratchFolder scratch_;

  public:
    std::optional<TokenizerFiles> files;
};

json llama(const json& more = json::object()) {
    json settings = {{"tokenizer_class", "LlamaTokenizerFast"}, {"bos_token", "<s>"}};
    settings.update(more);
    return settings;
}

}  // namespace

TEST_CASE("row 1: --bos decides") {
    const Folder with(template_of({"<s>"})), without;
    CHECK(with.start({.forced = false}).tokens.empty());
    CHECK(with.start({.forced = true}).tokens == Tokens{1});
    CHECK(without.start({.model_bos = 7, .forced = true}).tokens == Tokens{7});
    CHECK_THROWS_AS(without.start({.forced = true}), UsageError);
    CHECK(Folder(nullptr, {{"tokenizer_class", "GPT2Tokenizer"}, {"bos_token", "<x>"}})
              .start({.model_bos = 7, .forced = true})
              .tokens == Tokens{3});
}

TEST_CASE("row 2: add_bos_token of the classes that read it stands before the template") {
    CHECK(Folder(template_of({}), llama({{"add_bos_token", true}})).start().tokens == Tokens{1});
    CHECK(Folder(template_of({"<s>"}), llama({{"add_bos_token", false}})).start().tokens.empty());
    const json neox = {{"tokenizer_class", "GPTNeoXTokenizerFast"}, {"add_bos_token", true}, {"bos_token", "<x>"}};
    CHECK(Folder(nullptr, neox).start().tokens == Tokens{3});
    CHECK_THAT(Folder(nullptr, neox).start().note, Contains("<x> (3)") && Contains("add_bos_token true"));
    // An added token's object, and the class's own token where none is named.
    CHECK(Folder(nullptr, llama({{"add_bos_token", true}, {"bos_token", {{"content", "<x>"}}}})).start().tokens ==
          Tokens{3});
    CHECK(Folder(nullptr, {{"tokenizer_class", "LlamaTokenizer"}, {"add_bos_token", true}}).start().tokens ==
          Tokens{1});
    CHECK(Folder(nullptr, llama({{"add_bos_token", true}, {"bos_token", nullptr}})).start().tokens.empty());
}

TEST_CASE("row 3: the template decides for all others, whatever the model's bos is") {
    const json other = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_bos_token", false}};
    const TextStart start = Folder(template_of({"<s>", "<x>"}), other).start({.model_bos = 9, .of_run = true});
    CHECK(start.tokens == Tokens{1, 3});
    CHECK_THAT(start.note, Contains("<s> (1), <x> (3)") && Contains("template"));
    CHECK(Folder(template_of({}, {"</s>"}), other).start({.model_bos = 9, .of_run = true}).tokens.empty());
    const json sequence = {{"type", "Sequence"},
                           {"processors", {{{"type", "ByteLevel"}}, template_of({"<s>"}, {"</s>"})}}};
    CHECK(Folder(sequence).start().tokens == Tokens{1});
    CHECK(Folder(sequence).files->template_end() == Tokens{2});
}

TEST_CASE("row 4: a Llama class without add_bos_token begins with its bos_token") {
    CHECK(Folder(nullptr, llama({{"bos_token", "<x>"}})).start({.model_bos = 9}).tokens == Tokens{3});
    CHECK(Folder(nullptr, {{"tokenizer_class", "CodeLlamaTokenizer"}}).start().tokens == Tokens{1});
    CHECK(Folder(nullptr, {{"tokenizer_class", "GPTNeoXTokenizerFast"}, {"bos_token", "<x>"}}).start().tokens.empty());
}

TEST_CASE("row 5: nothing, but a run's own tokenizer has the model's token") {
    const json other = {{"tokenizer_class", "GPT2Tokenizer"}, {"bos_token", "<s>"}, {"add_bos_token", true}};
    CHECK(Folder(nullptr, other).start({.model_bos = 9}).tokens.empty());
    CHECK(Folder(nullptr, other).start({.model_bos = 9, .of_run = true}).tokens.empty());
    CHECK(Folder().start({.model_bos = 3}).tokens.empty());
    const TextStart start = Folder().start({.model_bos = 3, .of_run = true});
    CHECK(start.tokens == Tokens{3});
    CHECK_THAT(start.note, Contains("<x> (3)") && Contains("model.bos_token_id"));
    CHECK(Folder().start({.of_run = true}).tokens.empty());
    CHECK(Folder(nullptr, {{"model_max_length", 8}}).start({.model_bos = 3, .of_run = true}).tokens == Tokens{3});
    CHECK(Folder(nullptr, {{"bos_token", nullptr}}).start({.model_bos = 3, .of_run = true}).tokens.empty());
    CHECK(text_start(nullptr, {.model_bos = 3}).tokens == Tokens{3});  // bytes
    // Under another name, what lies next to it belongs to another tokenizer.
    CHECK(Folder(nullptr, llama(), "other.json").start().tokens.empty());
}

TEST_CASE("a prompt that spells the first tokens gets no second ones") {
    const auto begun = [](Tokens start, Tokens tokens) {
        begin_text(start, tokens);
        return tokens;
    };
    CHECK(begun({1}, {5}) == Tokens{1, 5});
    CHECK(begun({1}, {1, 5}) == Tokens{1, 5});
    CHECK(begun({1, 3}, {1, 5}) == Tokens{1, 3, 1, 5});
    CHECK(begun({}, {5}) == Tokens{5});
    CHECK(begun({1}, {}) == Tokens{1});
}

TEST_CASE("documents are marked as the template marks a text, else by the tokens that people use") {
    const DocumentMarks both = document_marks(*Folder(template_of({"<x>"}, {"<s>"})).files);
    CHECK(both.begin.tokens == Tokens{3});
    CHECK(both.end.tokens == Tokens{1});
    CHECK_THAT(both.begin.reason, Contains("begins with <x> (3)") && Contains("template"));
    const DocumentMarks known = document_marks(*Folder().files);
    CHECK(known.begin.tokens == Tokens{1});
    CHECK(known.end.tokens == Tokens{2});
    CHECK_THAT(known.end.reason, Contains("ends with </s> (2)") && Contains("belongs to <s>"));
    const DocumentMarks llama_class = document_marks(*Folder(nullptr, llama({{"add_bos_token", false}})).files);
    CHECK(llama_class.begin.tokens.empty());
    CHECK(llama_class.end.tokens == Tokens{2});
}

TEST_CASE("malformed files are named") {
    CHECK_THROWS_WITH(Folder(json{{"type", "TemplateProcessing"}}), Contains("tokenizer.json") && Contains("single"));
    json lacks = template_of({"<s>"});
    lacks["special_tokens"] = json::object();
    CHECK_THROWS_WITH(Folder(lacks), Contains("special_tokens has no ids of <s>"));
    CHECK_THROWS_WITH(Folder(nullptr, 3), Contains("tokenizer_config.json") && Contains("object"));
}
