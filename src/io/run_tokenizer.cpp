#include "src/io/run_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "src/config/json_file.h"
#include "src/core/errors.h"
#include "src/io/files.h"
#include "src/io/sha256.h"
#include "src/io/text_marks.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFile = "tokenizer.json";
constexpr const char* kBeside[] = {"tokenizer_config.json", "generation_config.json", "special_tokens_map.json",
                                   "chat_template.jinja", "tokenizer.model"};

fs::path copy_of(const fs::path& run) { return run / "tokenizer" / kFile; }

/// The largest id + 1 of a tokenizer.json.
struct VocabSizes {
    std::int64_t vocab = 0;  // of model.vocab, {token: id} or a list in the order of the ids
    std::int64_t all = 0;    // with added_tokens
};

/// Throws Error naming `file` and the part that is not so.
VocabSizes vocab_sizes_of(const json& tokenizer, const std::string& file) {
    std::int64_t size = 0;
    const auto take = [&](const json& id, const char* part) {
        require(id.is_number_unsigned() && id.get<std::uint64_t>() < std::uint64_t{1} << 31, file, ": ", part,
                ": expected token ids, found ", id.dump());
        size = std::max(size, id.get<std::int64_t>() + 1);
    };
    const auto vocab_place = "/model/vocab"_json_pointer;
    require(tokenizer.is_object() && tokenizer.contains(vocab_place), file,
            ": there is no model.vocab; expected a Hugging Face tokenizer.json");
    const json& vocab = tokenizer.at(vocab_place);
    require(vocab.is_object() || vocab.is_array(), file, ": model.vocab: expected an object or a list");
    if (vocab.is_array()) size = static_cast<std::int64_t>(vocab.size());
    if (vocab.is_object()) {
        for (const auto& [token, id] : vocab.items()) take(id, "model.vocab");
    }
    const std::int64_t vocab_size = size;
    const json added = tokenizer.value("added_tokens", json::array());
    require(added.is_array(), file, ": added_tokens: expected a list");
    for (const json& token : added) {
        require(token.is_object() && token.contains("id"), file, ": added_tokens: expected objects with an id");
        take(token["id"], "added_tokens");
    }
    return {vocab_size, size};
}

void write_new(const fs::path& file, const std::string& contents) {
    FileWriter writer(file, FileWriter::Mode::create);
    writer.write(bytes_of(contents));
    writer.finish();
}

}  // namespace

json RunTokenizer::record() const { return {{"file", file.string()}, {"sha256", sha256}}; }

std::optional<fs::path> tokenizer_file(const Config& config, bool resume) {
    if (!config.data.tokenizer) return std::nullopt;
    const fs::path configured = *config.data.tokenizer, copy = copy_of(config.output.directory);
    if (is_there(configured)) return configured;
    if (resume && is_there(copy)) return copy;
    throw Error(text("data.tokenizer: there is no file ", configured.string(),
                     resume ? text(" and no copy of it, ", copy.string()) : "",
                     "; give the tokenizer.json of the data's tokens, or null"));
}

std::optional<RunTokenizer> open_tokenizer(const Config& config, bool resume) {
    const std::optional<fs::path> file = tokenizer_file(config, resume);
    if (!file) return std::nullopt;
    RunTokenizer tokenizer{.file = *file, .sha256 = {}};
    VocabSizes sizes;
    try {
        const std::string contents = read_file(*file);
        tokenizer.sha256 = sha256(bytes_of(contents));
        json document = parse_json_text(contents, file->string());
        sizes = vocab_sizes_of(document, file->string());
        const TokenizerFiles readable(*file, std::move(document));  // what lies next to it too
    } catch (const Error& error) {
        throw Error(text("data.tokenizer: ", error.what()));
    }
    tokenizer.vocab_size = sizes.all;
    if (sizes.vocab > config.model.vocab_size) {
        throw UsageError(text("data.tokenizer: the ids of ", file->string(), " reach to ", sizes.vocab - 1,
                              ", but model.vocab_size is ", config.model.vocab_size));
    }
    return tokenizer;
}

void check_tokenizer(const std::optional<RunTokenizer>& tokenizer, const json& saved) {
    const auto before = saved.find("tokenizer");
    if (!tokenizer || before == saved.end() || before->at("sha256") == tokenizer->sha256) return;
    throw UsageError(text("--resume: data.tokenizer ", tokenizer->file.string(), " has the SHA-256 ", tokenizer->sha256,
                          ", but the checkpoint's tokenizer has ", before->at("sha256").get<std::string>(),
                          "; give the same file, which the run's folder keeps as ", copy_of("").string(),
                          ", or use another output.directory"));
}

void copy_tokenizer(const RunTokenizer& tokenizer, const fs::path& folder) {
    const std::string contents = read_file(tokenizer.file);
    require(sha256(bytes_of(contents)) == tokenizer.sha256, tokenizer.file.string(),
            " has changed since the run began");
    write_new(folder / kFile, contents);
    if (tokenizer.file.filename() == kFile) {
        for (const char* name : kBeside) {
            const fs::path beside = tokenizer.file.parent_path() / name;
            if (is_there(beside)) write_new(folder / name, read_file(beside));
        }
    }
    sync_folder(folder);
}

void keep_tokenizer(const RunTokenizer& tokenizer, const fs::path& run) {
    const fs::path copy = copy_of(run), folder = copy.parent_path();
    const fs::path aside = run / text(kTemporaryPrefix, "tokenizer");
    try {
        fs::remove_all(aside);  // what a kill has left, here and within publish_folder
        fs::remove_all(run / text(kTemporaryPrefix, "replaced-tokenizer"));
        if (is_there(copy) && sha256(bytes_of(read_file(copy))) == tokenizer.sha256) return;
        make_folders(aside);
        copy_tokenizer(tokenizer, aside);
        const fs::path earlier = publish_folder(aside, folder);
        sync_folder(fs::absolute(run));
        if (!earlier.empty()) fs::remove_all(earlier);
    } catch (const std::exception& error) {
        std::error_code ignored;
        fs::remove_all(aside, ignored);
        throw Error(text("the tokenizer was not copied to ", folder.string(), ": ", error.what()));
    }
}

}  // namespace coda
