// Training and validation batches from token files: deterministic, shuffled, stateless.
//
// A sequence is a window of seq_len tokens and its targets, the same window shifted by one. Windows do not overlap and
// never span two files; the up to seq_len tokens left at the end of a file are not used. Sequences are numbered through
// all epochs: number i is the (i mod sequences)-th of epoch i / sequences, in an order keyed by (seed, epoch). The
// tokens of a step follow only from its number, so a resumed run only needs to know how many sequences it has consumed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/io/tokens.h"

namespace coda {

inline constexpr std::int32_t kIgnoredTarget = -1;

/// Sequences, row after row: M tokens each with the target that follows it.
struct TokenBatch {
    std::vector<std::int32_t> tokens, targets;  // (M); a negative target is ignored
    std::vector<std::uint8_t> begins{};         // (M) 1 where a document begins, else 0
    std::int64_t valid = 0;                     // targets that count
};

/// (M) 1 where a token is `bos`, which begins a document, else 0; -1 for a model without.
std::vector<std::uint8_t> begins_at(std::int32_t bos, std::span<const std::int32_t> tokens);

/// Tokens [begin, end) of a file.
struct TokenRange {
    std::shared_ptr<const TokenFile> file;
    std::int64_t begin = 0;
    std::int64_t end = 0;

    std::int64_t count() const { return end - begin; }
    std::int64_t sequences(std::int64_t seq_len) const { return count() > seq_len ? (count() - 1) / seq_len : 0; }
};
using TokenRanges = std::vector<TokenRange>;

struct Datasets {
    TokenRanges train;
    TokenRanges val;
};

/// Opens the files of data.train and data.val. Without data.val, the last 10% of the tokens of all train files, in
/// their order, are validation and not part of train; if need be, that part grows until it holds one sequence. A file
/// with a mask is divided between two rows of its packing, which are as long as sequences. Throws
/// Error naming the file or pattern (tokens.h) when a file is missing, with the command that makes it where a script of
/// data/ does, and when train and validation do not have one sequence each.
Datasets open_datasets(const DataConfig& data, std::int64_t seq_len, std::int64_t vocab);

/// Only the validation data of open_datasets: with data.val, the files of data.train are not looked at.
TokenRanges open_validation(const DataConfig& data, std::int64_t seq_len, std::int64_t vocab);

struct LoaderOptions {
    std::int64_t seq_len = 0;
    std::int64_t vocab = 0;
    bool shuffle = false;
    bool repeat = true;  // false: one epoch only; targets beyond it are ignored
    std::uint64_t seed = 0;
    std::int32_t bos = -1;  // begins a document in files without a mask; -1: no token does
};

class Loader {
  public:
    /// Throws Error when the ranges hold fewer than `batch` sequences (what one step consumes). Training shuffles and
    /// repeats. Validation does neither, so its batch k is always the sequences [k batch, (k + 1) batch).
    Loader(TokenRanges ranges, const LoaderOptions& options, std::int64_t batch);

    /// Sequences [first, first + count), (count, seq_len). The target of token t is token t + 1; with a mask it is
    /// ignored unless the mask counts token t + 1. Documents begin where the file's mask says so, without a mask at
    /// each `bos`. Throws Error naming file and position when an id is >= vocab.
    TokenBatch batch(std::int64_t first, std::int64_t count) const;

    std::int64_t sequences() const { return first_.back(); }  // per epoch
    const TokenRanges& ranges() const { return ranges_; }

  private:
    /// Row `row` of the batch is the `sequence`-th of an epoch without shuffling.
    void read_row(std::int64_t sequence, std::size_t row, TokenBatch& batch) const;

    TokenRanges ranges_;
    LoaderOptions options_;
    std::vector<std::int64_t> first_;  // (ranges + 1) the number of each range's first window, then of all windows
};

/// Documents within sequences: one starts at the first token of every sequence and wherever `begins` is not 0.
/// Sequences are the rows of begins (count, seq_len). doc_start (same shape) is, for each token, the position in its
/// sequence at which its document begins; positions is the token's distance from there.
void document_starts(std::span<const std::uint8_t> begins, std::int64_t seq_len, std::span<std::int32_t> positions,
                     std::span<std::int32_t> doc_start);

}  // namespace coda
