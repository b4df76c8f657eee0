// How a text begins, and the tokens that mark documents: one rule for prompts, samples of training and token shards.
//
//      the files say                                                  a text begins with
//   1  --bos yes or --bos no                                          so
//   2  class Llama*, CodeLlama*, add_bos_token is given; GPTNeoX*    bos_token if that is true, else nothing
//   3  tokenizer.json has a TemplateProcessing                        its ids before $A
//   4  class Llama* or CodeLlama*, add_bos_token is not given         bos_token
//   5  none of these                                                  nothing; model.bos_token_id without a tokenizer,
//                                                                     and in a run whose tokenizer_config.json has
//                                                                     neither a class nor bos_token, or is missing
//
// The tokenizer_config.json next to a file named tokenizer.json gives class, add_bos_token and bos_token. transformers
// 4 and 5 give the same ids wherever they agree with each other, but for prompts that spell the first token, which they
// put there twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace coda {

/// tokenizer.json, and what lies next to it.
class TokenizerFiles {
  public:
    /// Throws Error naming the file that is malformed.
    explicit TokenizerFiles(const std::filesystem::path& tokenizer_json);

    /// `document` is the file, for who has read it. Without its model, `vocabulary` gives the id of a token by its
    /// text.
    using Vocabulary = std::function<std::optional<std::uint32_t>(const std::string& token)>;
    TokenizerFiles(const std::filesystem::path& tokenizer_json, nlohmann::json document, Vocabulary vocabulary = {});

    std::optional<std::int32_t> id_of(const std::string& token) const;
    std::optional<std::string> text_of(std::int32_t id) const;
    std::optional<std::string> added_text_of(std::int32_t id) const;  // of an added token
    bool names_bos() const;  // tokenizer_config.json has a class or bos_token, so what adds none is no oversight

    struct Marks {
        std::vector<std::int32_t> tokens;
        std::string reason;  // as a clause after "because"
    };
    std::optional<Marks> begin() const;       // rows 2 to 4
    std::optional<std::int32_t> bos() const;  // bos_token, or the class's own, where the tokenizer has it
    std::optional<std::int32_t> eos() const;  // eos_token
    std::vector<std::int32_t> template_begin() const { return template_before_; }
    std::vector<std::int32_t> template_end() const { return template_after_; }

  private:
    void read_template(const nlohmann::json& post_processor);
    std::string tokenizer_class() const;
    std::optional<std::string> named(const char* key) const;
    std::optional<std::string> bos_text() const;

    std::string file_;
    Vocabulary vocabulary_;
    nlohmann::json tokenizer_, settings_, special_;  // the latter two null where there is no such file
    bool has_template_ = false;
    std::vector<std::int32_t> template_before_{}, template_after_{};  // $A of `single`
};

/// chat_template of a tokenizer_config.json: a text, or the text named "default" in a list; nothing for anything else.
std::optional<std::string> chat_template_text(const nlohmann::json& settings);

struct TextStartOptions {
    std::optional<std::int64_t> model_bos{};  // model.bos_token_id
    bool of_run = false;                      // of a run and its samples, not of a Hugging Face folder
    std::optional<bool> forced{};             // --bos
};

struct TextStart {
    std::vector<std::int32_t> tokens;
    std::string note;  // "a text begins with <s> (1), because ..."; empty where there is nothing to say
};

/// `files` is null without a tokenizer. Throws UsageError for --bos yes where no such token is known.
TextStart text_start(const TokenizerFiles* files, const TextStartOptions& options);

/// Puts `start` before `tokens`, unless they begin with it.
void begin_text(const std::vector<std::int32_t>& start, std::vector<std::int32_t>& tokens);

/// The marks of documents that --bos auto and --eos auto of coda_tokenize choose: rows 2 to 4, else the first of
/// <|begin_of_text|>, <s> and <|endoftext|> that the tokenizer has; and the ids of the template after $A, else the end
/// that belongs to one of these.
struct DocumentMarks {
    TokenizerFiles::Marks begin, end;
};
DocumentMarks document_marks(const TokenizerFiles& files);

}  // namespace coda
