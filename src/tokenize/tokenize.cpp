#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "src/core/console.h"
#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/core/printable.h"
#include "src/io/text_marks.h"
#include "src/io/tokens.h"
#include "src/tokenize/inputs.h"
#include "src/tokenize/ordered_workers.h"
#include "src/tokenize/progress.h"
#include "src/tokenize/run.h"
#include "src/tokenize/shard_writer.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

DocumentOptions document_options(const TokenizeOptions& options, const Tokenizer& tokenizer) {
    DocumentOptions result = options.documents;
    const DocumentMarks automatic = document_marks(files_of(tokenizer));
    result.bos = marks(tokenizer, "--bos", options.bos, automatic.begin.tokens);
    result.eos = marks(tokenizer, "--eos", options.eos, automatic.end.tokens);
    if (result.bos.empty() && result.eos.empty() && options.bos == "auto" && options.eos == "auto") {
        throw UsageError(text(options.tokenizer, ": ", automatic.begin.reason,
                              "; name the tokens that mark documents with --bos and --eos, or say none"));
    }
    if (options.bos == "auto") say(automatic.begin.reason);
    if (options.eos == "auto") say(automatic.end.reason);
    return result;
}

struct Totals {
    std::int64_t documents = 0, empty = 0, replaced = 0;
};

/// The shards of the training and validation tokens.
class Output {
  public:
    Output(const TokenizeOptions& options, std::int64_t vocab, const InputFiles& inputs) {
        const bool both = options.segments.val_fraction > 0;
        train_.emplace(options.out + (both ? "_train" : ""), vocab, options.shard_tokens, options.overwrite, inputs);
        if (both) val_.emplace(options.out + "_val", vocab, options.shard_tokens, options.overwrite, inputs);
    }

    void add(const Encoded& encoded) {
        train_->add(encoded.train);
        if (val_) val_->add(encoded.validation);
        totals_.documents += encoded.documents;
        totals_.empty += encoded.empty_documents;
        totals_.replaced += encoded.replaced;
    }

    std::int64_t tokens() const { return train_->tokens() + (val_ ? val_->tokens() : 0); }

    void finish(bool blank_line) {
        require(tokens() > 0, "the inputs have no text: no shard is written");
        require(train_->tokens() > 0, "no document is left for training; lower --val-fraction");
        const char* advice = blank_line ? "raise --val-fraction"
                                        : "raise --val-fraction, or divide each text "
                                          "with --split-at blank-line";
        require(!val_ || val_->tokens() > 0, "no document is left for validation; ", advice);
        train_->finish();
        if (val_) val_->finish();
        report(*train_);
        if (val_) report(*val_);
        if (totals_.empty > 0) say(text(totals_.empty, " documents have no text"));
        if (totals_.replaced > 0) say(text("invalid UTF-8 was replaced in ", totals_.replaced, " places"));
    }

    const Totals& totals() const { return totals_; }

  private:
    static void report(ShardWriter& writer) {
        const std::int64_t tokens = writer.tokens();
        const std::vector<fs::path> files = writer.commit();
        const std::string more = files.size() > 1 ? text(" ... ", files.back().filename().string()) : "";
        say(text(files.front().string(), more, ": ", tokens, " tokens"));
    }

    std::optional<ShardWriter> train_, val_;
    Totals totals_;
};

}  // namespace

void tokenize(const TokenizeOptions& options) {
    const Tokenizer tokenizer(read_tokenizer(options.tokenizer));
    require_vocab(tokenizer, options);
    const DocumentOptions documents = document_options(options, tokenizer);
    const std::vector<std::string> inputs = expand_inputs(options.inputs);
    SegmentReader reader(tokenizer, inputs, options.segments);
    InputFiles files;
    files.add(options.tokenizer);
    for (const std::string& input : inputs) files.add(input);
    Output output(options, tokenizer.vocab_size(), files);

    const std::size_t threads = thread_count(options);
    OrderedWorkers<Segment, Encoded> workers(threads, bytes_in_work(threads), [&] {
        return [encoder = std::make_shared<Encoder>(tokenizer), &documents, &options](Segment& segment) {
            return encode_segment(segment, documents, options.segments.val_fraction, *encoder);
        };
    });
    const auto begin = std::chrono::steady_clock::now();
    {
        Progress progress(total_bytes(inputs));
        const auto write_oldest = [&] {
            output.add(workers.take());
            progress.update(reader.consumed(), output.tokens());
            if (interrupted()) throw InterruptedError("interrupted; nothing was written");
        };
        while (std::optional<Segment> segment = reader.next()) {
            const auto weight = static_cast<std::int64_t>(segment->text.size());
            while (!workers.has_room(weight)) write_oldest();
            workers.submit(std::move(*segment), weight);
            while (workers.oldest_is_done()) write_oldest();
        }
        while (!workers.empty()) write_oldest();
    }
    output.finish(options.segments.split_at == SplitAt::blank_line);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::fprintf(stderr, "coda_tokenize: %lld documents, %s in %s, %s tokens/s\n",
                 static_cast<long long>(output.totals().documents),
                 bytes_text(static_cast<double>(reader.consumed())).c_str(), duration_text(seconds).c_str(),
                 count_text(static_cast<double>(output.tokens()) / std::max(seconds, 1e-9)).c_str());
}

}  // namespace coda
