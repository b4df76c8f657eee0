// Multiple-choice evaluation: its arithmetic on losses known by hand, and the losses of a model against the textbook's.
#include "src/train/multiple_choice.h"

#include <random>

#include "tests/catch.h"
#include "tests/io/test_evaluation_shards.h"
#include "tests/io/test_files.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

class Shard {
  public:
    explicit Shard(const std::vector<ChoiceExample>& examples, std::int64_t vocab, std::int64_t seq_len) {
        put(folder_.path() / "choices.bin", evaluation_bytes(examples));
        shard.emplace(folder_.path() / "choices.bin", vocab, seq_len);
    }
    std::optional<EvaluationShard> shard;

  private:
    ScratchFolder folder_;
};

/// The loss of a target is its id / 10, so that the sums of a completion are known; 90 stands for a loss that is NaN.
std::vector<double> loss_by_id(const TokenBatch& batch) {
    std::vector<double> losses;
    for (const std::int32_t target : batch.targets) {
        losses.push_back(target < 0 ? 0 : target == 90 ? std::nan("") : target / 10.0);
    }
    return losses;
}

std::pair<double, double> accuracies(const std::vector<ChoiceExample>& examples) {
    const Shard file(examples, 100, 6);
    const MultipleChoiceResult result = evaluate_multiple_choice(*file.shard, 0, 3, 6, loss_by_id);
    return {result.acc, result.acc_norm};
}

using Pair = std::pair<double, double>;

/// Random examples of two to five completions; the rows have 2 to 11 tokens.
std::vector<ChoiceExample> random_examples(std::size_t count, std::uint64_t vocab) {
    std::mt19937_64 random(3);
    const auto tokens = [&](std::size_t most) {
        Words words(1 + random() % most);
        for (std::uint16_t& word : words) word = static_cast<std::uint16_t>(random() % vocab);
        return words;
    };
    std::vector<ChoiceExample> examples;
    for (std::size_t i = 0; i < count; ++i) {
        ChoiceExample example{0, tokens(6), {}};
        for (std::uint64_t c = 2 + random() % 4; c > 0; --c) example.completions.push_back(tokens(5));
        example.label = static_cast<std::uint16_t>(random() % example.completions.size());
        examples.push_back(example);
    }
    return examples;
}

/// Sum of the losses of a completion, by the textbook model on only the last seq_len + 1 tokens of the row.
double textbook_sum(const ModelConfig& model, const textbook::Weights& weights, const Words& context,
                    const Words& completion, std::size_t seq_len) {
    std::vector<int> row(context.begin(), context.end());
    row.insert(row.end(), completion.begin(), completion.end());
    if (row.size() > seq_len + 1) row.erase(row.begin(), row.end() - static_cast<std::ptrdiff_t>(seq_len + 1));
    textbook::Batch batch;
    batch.batch = 1;
    batch.seq_len = static_cast<std::int64_t>(row.size()) - 1;
    batch.tokens.assign(row.begin(), row.end() - 1);
    batch.targets.assign(row.begin() + 1, row.end());
    std::fill(batch.targets.begin(), batch.targets.end() - static_cast<std::ptrdiff_t>(completion.size()), -1);
    return textbook::loss(model, weights, {batch}) * static_cast<double>(completion.size());
}

std::size_t lowest(const std::vector<double>& values) {
    return static_cast<std::size_t>(std::min_element(values.begin(), values.end()) - values.begin());
}

}  // namespace

TEST_CASE("acc goes by the sum of a completion's losses, acc_norm by their mean") {
    CHECK(accuracies({{0, {1}, {{10, 10}, {15}}}}) == Pair(0, 1));  // 2 against 1.5, 1 against 1.5
    CHECK(accuracies({{1, {1}, {{10, 10}, {15}}}}) == Pair(1, 0));
    CHECK(accuracies({{2, {1}, {{20}, {30, 1}, {5, 6, 7}}}}) == Pair(1, 1));
    CHECK(accuracies({{0, {1}, {{10}, {10}}}}) == Pair(1, 1));  // of equal ones the first
    CHECK(accuracies({{1, {1}, {{10}, {10}}}}) == Pair(0, 0));
    CHECK(accuracies({{0, {1}, {{90}, {50}}}}) == Pair(0, 0));  // NaN does not win,
    CHECK(accuracies({{1, {1}, {{90}, {50}}}}) == Pair(1, 1));  // nor keep another from it,
    CHECK(accuracies({{0, {1}, {{90}, {90}}}}) == Pair(0, 0));  // and is never right
    CHECK(accuracies({{0, {1}, {{5}, {6}}}, {1, {1}, {{5}, {6}}}, {0, {1}, {{5}, {6}}}, {0, {2}, {{1}, {2}}}}) ==
          Pair(0.75, 0.75));
}

TEST_CASE("a row holds context and completion, and only completion tokens are targets") {
    const Shard file({{0, {1, 2, 3}, {{4, 5}, {6}}},
                      {0, {7}, {{8, 9, 10, 11, 12, 13}, {14}}},  //
                      {1, {20, 21, 22, 23, 24, 25, 26, 27, 28}, {{30}, {31, 32, 33, 34, 35, 36}}}},
                     100, 6);
    std::vector<std::vector<std::int32_t>> tokens, targets;
    std::vector<std::int64_t> valid;
    const MultipleChoiceResult result = evaluate_multiple_choice(*file.shard, 0, 4, 6, [&](const TokenBatch& batch) {
        REQUIRE(batch.tokens.size() == 24);
        valid.push_back(batch.valid);
        for (std::ptrdiff_t row = 0; row < 24; row += 6) {
            tokens.emplace_back(batch.tokens.begin() + row, batch.tokens.begin() + row + 6);
            targets.emplace_back(batch.targets.begin() + row, batch.targets.begin() + row + 6);
        }
        return loss_by_id(batch);
    });
    CHECK(tokens == std::vector<std::vector<std::int32_t>>{{1, 2, 3, 4, 0, 0},
                                                           {1, 2, 3, 0, 0, 0},
                                                           {7, 8, 9, 10, 11, 12},
                                                           {7, 0, 0, 0, 0, 0},
                                                           {23, 24, 25, 26, 27, 28},
                                                           {28, 31, 32, 33, 34, 35},
                                                           {0, 0, 0, 0, 0, 0},
                                                           {0, 0, 0, 0, 0, 0}});
    CHECK(targets == std::vector<std::vector<std::int32_t>>{{-1, -1, 4, 5, -1, -1},
                                                            {-1, -1, 6, -1, -1, -1},
                                                            {8, 9, 10, 11, 12, 13},
                                                            {14, -1, -1, -1, -1, -1},
                                                            {-1, -1, -1, -1, -1, 30},
                                                            {31, 32, 33, 34, 35, 36},
                                                            {-1, -1, -1, -1, -1, -1},
                                                            {-1, -1, -1, -1, -1, -1}});
    CHECK(valid == std::vector<std::int64_t>{10, 7});
    CHECK(result.examples == 3);
    CHECK(result.rows == 6);
    CHECK(result.truncated == 2);
}

TEST_CASE("rows a micro-batch and limit change what is run, not how it is counted") {
    const std::vector<ChoiceExample> examples = random_examples(30, 90);
    const Shard file(examples, 100, 6);
    const MultipleChoiceResult whole = evaluate_multiple_choice(*file.shard, 0, 1, 6, loss_by_id);
    for (const std::int64_t rows : {2, 3, 7, 64, 1000}) {
        const MultipleChoiceResult result = evaluate_multiple_choice(*file.shard, 0, rows, 6, loss_by_id);
        CHECK(std::tuple(result.acc, result.acc_norm, result.examples, result.rows, result.truncated) ==
              std::tuple(whole.acc, whole.acc_norm, whole.examples, whole.rows, whole.truncated));
    }
    const Shard first(std::vector<ChoiceExample>(examples.begin(), examples.begin() + 7), 100, 6);
    const MultipleChoiceResult expected = evaluate_multiple_choice(*first.shard, 0, 4, 6, loss_by_id);
    const MultipleChoiceResult limited = evaluate_multiple_choice(*file.shard, 7, 4, 6, loss_by_id);
    CHECK(limited.examples == 7);
    CHECK(limited.rows == expected.rows);
    CHECK(limited.acc == expected.acc);
    CHECK(limited.acc_norm == expected.acc_norm);
    CHECK(evaluate_multiple_choice(*file.shard, 31, 4, 6, loss_by_id).examples == 30);
}

// Tolerance: see tests/model/textbook_test.cpp; a wrong row, position or target shows at 1e-2 and more.
TEST_CASE("the sums of a model in double agree with the textbook model's, completion by completion") {
    const ModelConfig model = tiny_model();
    const textbook::Weights weights = textbook::random_weights(model, 7);
    const Sizes sizes = GENERATE(Sizes{.batch = 3, .seq_len = 8}, Sizes{.batch = 3, .seq_len = 8, .chunks = 3});
    const std::vector<ChoiceExample> examples = random_examples(40, 37);
    const Shard file(examples, model.vocab_size, sizes.seq_len);

    ModelRun run(model, sizes, kFloat64);
    run.start();
    run.set_weights(weights);
    Feed feed(*run.executor, run.schedules.host, *run.tokens, sizes.seq_len);
    std::vector<double> sums;
    const MultipleChoiceResult result =
        evaluate_multiple_choice(*file.shard, 0, sizes.batch, sizes.seq_len, [&](const TokenBatch& batch) {
            upload_scalar(*run.executor, run.schedules.host.alpha, 1.0 / static_cast<double>(batch.valid));
            feed.upload(batch);
            run.executor->run(Pass::evaluate);
            const std::vector<double> losses = download_vector(*run.executor, run.schedules.host.losses);
            for (std::int64_t row = 0; row < sizes.batch; ++row) {
                const auto begin = losses.begin() + row * sizes.seq_len;
                sums.push_back(std::accumulate(begin, begin + sizes.seq_len, 0.0));
            }
            return losses;
        });

    std::vector<double> expected;
    double acc = 0, acc_norm = 0;
    for (const ChoiceExample& example : examples) {
        std::vector<double> total, mean;
        for (const Words& completion : example.completions) {
            total.push_back(
                textbook_sum(model, weights, example.context, completion, static_cast<std::size_t>(sizes.seq_len)));
            mean.push_back(total.back() / static_cast<double>(completion.size()));
        }
        expected.insert(expected.end(), total.begin(), total.end());
        acc += lowest(total) == example.label;
        acc_norm += lowest(mean) == example.label;
    }
    sums.resize(expected.size());  // the rest are unused rows
    CHECK(relative_error(sums, expected) < 1e-12);
    CHECK(result.acc == acc / 40);
    CHECK(result.acc_norm == acc_norm / 40);
    CHECK(result.acc != result.acc_norm);  // the examples tell the two measures apart
    CHECK(result.truncated > 0);
}
