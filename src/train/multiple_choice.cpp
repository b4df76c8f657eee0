#include "src/train/multiple_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace coda {

namespace {

/// A row that waits for its micro-batch, or the loss that it got there.
struct Row {
    std::int64_t example = 0;
    std::int64_t completion_tokens = 0;
    double loss = 0;
};

/// Collects rows until a micro-batch is full.
class RowBatch {
  public:
    RowBatch(std::int64_t rows, std::int64_t seq_len) : rows_(rows), seq_len_(seq_len) { clear(); }

    bool full() const { return used_ == rows_; }
    bool empty() const { return used_ == 0; }
    const TokenBatch& batch() const { return batch_; }

    void clear() {
        const auto count = static_cast<std::size_t>(rows_ * seq_len_);
        batch_.tokens.assign(count, 0);  // padding; causal attention hides it from the tokens before it
        batch_.targets.assign(count, kIgnoredTarget);
        batch_.valid = used_ = 0;
    }

    /// Adds a row that is not yet full; true when it lost a part of its context.
    bool add(const std::vector<std::int32_t>& context, const std::vector<std::int32_t>& completion) {
        std::vector<std::int32_t> tokens = context;
        tokens.insert(tokens.end(), completion.begin(), completion.end());
        const auto longest = static_cast<std::size_t>(seq_len_) + 1;
        const bool truncated = tokens.size() > longest;
        if (truncated) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(longest));

        const auto row = static_cast<std::ptrdiff_t>(used_++ * seq_len_);
        const auto positions = static_cast<std::ptrdiff_t>(tokens.size()) - 1;
        const auto targets = static_cast<std::ptrdiff_t>(completion.size());
        std::copy_n(tokens.begin(), positions, batch_.tokens.begin() + row);
        std::copy(completion.begin(), completion.end(), batch_.targets.begin() + row + positions - targets);
        batch_.valid += targets;
        return truncated;
    }

    /// Sum of the losses of row `index`, of which the ignored ones are 0.
    double sum(const std::vector<double>& losses, std::int64_t index) const {
        double sum = 0;
        for (std::int64_t t = 0; t < seq_len_; ++t) sum += losses[static_cast<std::size_t>(index * seq_len_ + t)];
        return sum;
    }

  private:
    std::int64_t rows_, seq_len_, used_ = 0;
    TokenBatch batch_;
};

/// Index of the lowest value; the first of equal ones.
template <class Value>
std::int64_t lowest(const std::vector<Row>& rows, Value&& value_of) {
    std::int64_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t c = 0; c < rows.size(); ++c) {
        if (value_of(rows[c]) < least) {
            least = value_of(rows[c]);
            best = static_cast<std::int64_t>(c);
        }
    }
    return std::isfinite(least) ? best : -1;
}

}  // namespace

MultipleChoiceResult evaluate_multiple_choice(const EvaluationShard& shard, std::int64_t limit, std::int64_t rows,
                                              std::int64_t seq_len, const TokenLosses& losses_of) {
    MultipleChoiceResult result;
    result.examples = limit > 0 ? std::min(limit, shard.examples()) : shard.examples();
    RowBatch batch(rows, seq_len);
    std::vector<Row> waiting;              // the rows of `batch`
    std::vector<std::vector<Row>> scored;  // by example
    const auto run = [&] {
        if (batch.empty()) return;
        const std::vector<double> losses = losses_of(batch.batch());
        for (std::size_t r = 0; r < waiting.size(); ++r) {
            waiting[r].loss = batch.sum(losses, static_cast<std::int64_t>(r));
            scored[static_cast<std::size_t>(waiting[r].example)].push_back(waiting[r]);
        }
        waiting.clear();
        batch.clear();
    };

    std::vector<std::int64_t> labels;
    for (std::int64_t index = 0; index < result.examples; ++index) {
        const EvaluationExample example = shard.example(index);
        labels.push_back(example.label);
        scored.emplace_back();
        for (const std::vector<std::int32_t>& completion : example.completions) {
            result.truncated += batch.add(example.context, completion) ? 1 : 0;
            waiting.push_back({.example = index, .completion_tokens = static_cast<std::int64_t>(completion.size())});
            ++result.rows;
            if (batch.full()) run();
        }
    }
    run();

    std::int64_t right = 0, right_norm = 0;
    for (std::size_t i = 0; i < scored.size(); ++i) {
        right += lowest(scored[i], [](const Row& row) { return row.loss; }) == labels[i];
        right_norm += lowest(scored[i], [](const Row& row) {
                          return row.loss / static_cast<double>(row.completion_tokens);
                      }) == labels[i];
    }
    result.acc = static_cast<double>(right) / static_cast<double>(result.examples);
    result.acc_norm = static_cast<double>(right_norm) / static_cast<double>(result.examples);
    return result;
}

}  // namespace coda
