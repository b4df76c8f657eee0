// Generation with a cache, on the CPU: logits against the textbook model at every position, and the same bits however a
// sequence is run.
#include "src/core/errors.h"
#include "tests/catch.h"
#include "tests/io/scratch_folder.h"
#include "tests/model/pass_decoder.h"
#include "tests/model/sequences.h"

using namespace coda;
using namespace coda::test;
using Catch::Contains;

namespace {

using State = SequenceAdvance::State;

Tokens random_tokens(std::size_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Tokens tokens(count);
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 37);  // tiny_model's vocabulary
    return tokens;
}

/// A model with a decoder. In double the weights need the master's memory, which an update has.
struct Generation {
    ModelRun run;
    std::unique_ptr<BatchDecoder> decoder;

    Generation(const ModelConfig& model, const GenerationShape& shape, const Precision& precision)
        : run(model, sizes_of(shape, precision), precision) {
        plan_and_check(run.schedules);
        run.start();
        run.set_weights(textbook::random_weights(model, 7));
        decoder = pass_decoder(run);
    }

    static Sizes sizes_of(const GenerationShape& shape, const Precision& precision) {
        PassSet passes = passes_of(Mode::generate);
        if (precision == kFloat64) passes = passes | PassSet{Pass::update};
        return {.batch = 1, .seq_len = 2, .passes = passes, .generation = shape};
    }

    std::vector<double> logits(int row) {
        const std::vector<double> all = run.elements(run.schedules.host.sequences.logits.row_slice(row, 1));
        return {all.begin(), all.begin() + run.model.vocab_size};
    }
};

/// The textbook's logits of what follows `tokens`.
std::vector<double> textbook_logits(const ModelConfig& model, const Tokens& tokens) {
    textbook::Batch batch;
    batch.batch = 1;
    batch.seq_len = static_cast<std::int64_t>(tokens.size());
    batch.tokens = tokens;
    batch.targets.assign(tokens.size(), -1);
    const std::vector<double> all = textbook::logits(model, textbook::random_weights(model, 7), batch);
    return {all.end() - static_cast<std::ptrdiff_t>(model.vocab_size), all.end()};
}

struct Case {
    const char* name;
    std::int64_t kv_heads = 2;
    bool tied = false, scaled = false, bias = false, norms = false;
    std::int64_t window = 0;
    MlpKind mlp = MlpKind::swiglu;
    bool learned = false, layernorm = false, yarn = false;
};

ModelConfig model_of(const Case& c) {
    ModelConfig model = tiny_model();
    model.num_key_value_heads = c.kv_heads;
    model.tie_word_embeddings = c.tied;
    model.qk_norm = c.norms;
    model.sliding_window = c.window;
    model.attention_bias = model.attention_out_bias = c.bias;
    model.mlp = c.mlp;
    if (c.layernorm) model.norm = NormKind::layernorm;
    model.mlp_bias = c.mlp != MlpKind::swiglu;
    if (c.learned) {
        model.position_embeddings = PositionEmbeddings::learned;
        model.max_position_embeddings = 14;
    }
    if (c.scaled) model.rope_scaling = RopeScaling{8, 1, 4, 40};
    if (c.yarn) model.rope_scaling = small_yarn();
    return model;
}

/// Runs sequences side by side to their ends, one step per call, and compares every row's logits.
void require_textbook(const ModelConfig& model, Generation& generation, std::vector<Tokens> sequences,
                      std::int64_t max_tokens) {
    for (std::size_t row = 0; row < sequences.size(); ++row)
        generation.decoder->start(static_cast<int>(row), sequence_of(sequences[row], max_tokens, row));
    for (bool running = true; running;) {
        const std::vector<SequenceAdvance> advances = generation.decoder->advance(1);
        running = false;
        for (std::size_t row = 0; row < sequences.size(); ++row) {
            if (advances[row].tokens.empty()) continue;
            INFO("row " << row << ", position " << sequences[row].size());
            REQUIRE(relative_error(generation.logits(static_cast<int>(row)), textbook_logits(model, sequences[row])) <=
                    1e-12);
            sequences[row].push_back(advances[row].tokens.at(0));
            running = running || advances[row].state == State::running;
        }
    }
}

}  // namespace

// Tolerance: see textbook_test.cpp; a wrong position, head or cached row shows at 1e-2 and more.
TEST_CASE("decoding in double has the textbook's logits at every position") {
    const Case c = GENERATE(
        Case{.name = "grouped-query"}, Case{.name = "multi-query", .kv_heads = 1},
        Case{.name = "a key/value head per query head", .kv_heads = 4}, Case{.name = "tied", .tied = true},
        Case{.name = "scaled RoPE", .scaled = true}, Case{.name = "yarn", .yarn = true},
        Case{.name = "biases of attention", .bias = true}, Case{.name = "norms of q and k", .norms = true},
        Case{.name = "a window of 1", .window = 1}, Case{.name = "a window of 5", .window = 5},
        Case{.name = "a window of the whole context", .window = 14},
        Case{.name = "GELU, every bias", .bias = true, .mlp = MlpKind::gelu_tanh},
        Case{.name = "learned positions", .learned = true},
        Case{.name = "gpt2", .tied = true, .bias = true, .mlp = MlpKind::gelu_tanh, .learned = true, .layernorm = true},
        Case{.name = "learned positions, tied", .tied = true, .learned = true});
    INFO(c.name);
    const ModelConfig model = model_of(c);
    Generation generation(model, {.batch = 4, .context = 14}, kFloat64);
    // One token, the longest prompt that there is room for, and two between; to the end of the context, then again in
    // batch that other sequences have left.
    require_textbook(model, generation, {random_tokens(1, 1), random_tokens(13, 2), random_tokens(6, 3)}, 100);
    require_textbook(model, generation,
                     {random_tokens(9, 4), random_tokens(1, 5), random_tokens(2, 6), random_tokens(11, 7)}, 5);
}

TEST_CASE("prompts of every padded length have the textbook's logits") {
    // A window of 200: the first prefill fits in it.
    const ModelConfig model = model_of({.name = "", .window = GENERATE(0, 200)});
    Generation generation(model, {.batch = 4, .context = 300}, kFloat64);
    CHECK(generation.run.schedules.prefill.size() == 3);
    require_textbook(model, generation,
                     {random_tokens(128, 1), random_tokens(129, 2), random_tokens(130, 3), random_tokens(257, 4)}, 2);
    require_textbook(model, generation, {random_tokens(299, 5), random_tokens(258, 6)}, 2);
}

TEST_CASE("a sequence has the same bits by itself and with others, in any row, for any number of steps per call") {
    const ModelConfig model = model_of({.name = "", .tied = true});
    const Precision precision = GENERATE(kFloat32, kMixedBf16);
    const GenerationShape shape{.batch = 8, .context = 40};
    const SequenceStart sequence = sequence_of(random_tokens(7, 1), 32);

    Generation alone(model, {.batch = 1, .context = 40}, precision);
    const Tokens expected = tokens_of(*alone.decoder, 0, sequence, 1);
    const std::vector<double> logits = alone.logits(0);
    REQUIRE(expected.size() == 32);
    CHECK(tokens_of(*alone.decoder, 0, sequence, 32) == expected);
    CHECK(alone.logits(0) == logits);

    Generation batch(model, shape, precision);
    for (const int row : {0, 3, 7}) {
        for (int other = 0; other < 8; ++other) {
            if (other == row) continue;
            const auto length = static_cast<std::size_t>(1 + 5 * other);
            batch.decoder->start(other, sequence_of(random_tokens(length, 90 + length), 1 + other, 50 + length));
        }
        CHECK(tokens_of(*batch.decoder, row, sequence, row == 3 ? 32 : 5) == expected);
        CHECK(batch.logits(row) == logits);
    }
}

TEST_CASE("sequences with the same prompt and other seeds differ") {
    Generation generation(tiny_model(), {.batch = 2, .context = 40}, kFloat32);
    CHECK(tokens_of(*generation.decoder, 0, sequence_of({1, 2, 3}, 30, 1)) !=
          tokens_of(*generation.decoder, 1, sequence_of({1, 2, 3}, 30, 2)));
}

TEST_CASE("each sequence ends by itself") {
    Generation generation(tiny_model(), {.batch = 3, .context = 20}, kFloat32);
    Decoder& decoder = *generation.decoder;
    const SequenceStart sequence = sequence_of(random_tokens(4, 1), 10);
    const Tokens free = tokens_of(decoder, 0, sequence);
    REQUIRE(free.size() == 10);

    SequenceStart ends = sequence;
    ends.end_tokens = {36, free[5], 35};
    const auto first = std::find(free.begin(), free.end(), free[5]);
    const auto other = std::find_if(free.begin(), free.end(), [](std::int32_t t) { return t == 36 || t == 35; });
    const Tokens until(free.begin(), std::min(first, other) + 1);
    const SequenceStart full = sequence_of(random_tokens(4, 1), 1000);
    decoder.start(0, ends);
    decoder.start(1, sequence);
    decoder.start(2, full);
    const std::vector<SequenceAdvance> advances = decoder.advance(100);
    CHECK(advances[0].tokens == until);
    CHECK(advances[0].state == State::ended);
    CHECK(advances[1].tokens == free);
    CHECK(advances[1].state == State::length);
    CHECK(advances[2].tokens.size() == 16);  // with the prompt's 4 the context is full
    CHECK(advances[2].state == State::length);
    for (const SequenceAdvance& idle : decoder.advance(1)) {
        CHECK(idle.tokens.empty());
        CHECK(idle.state == State::idle);
    }

    // Stopped from outside, and started again in the same row.
    decoder.start(1, full);
    CHECK(decoder.advance(3)[1].state == State::running);
    decoder.stop(1);
    CHECK(decoder.advance(1)[1].state == State::idle);
    CHECK(tokens_of(decoder, 1, sequence) == free);
}

TEST_CASE("an idle row's cache stays unchanged") {
    Generation generation(tiny_model(), {.batch = 2, .context = 20}, kFloat32);
    const HostViews& host = generation.run.schedules.host;
    tokens_of(*generation.decoder, 1, sequence_of(random_tokens(9, 1), 4));
    const auto slot_1 = [&](const View& cache) {
        std::vector<double> found;
        for (std::int64_t layer = 0; layer < 2; ++layer) {
            const auto rows = generation.run.elements(cache.row_slice((2 * layer + 1) * 2 * 20, 2 * 20));
            found.insert(found.end(), rows.begin(), rows.end());
        }
        return found;
    };
    const auto keys = slot_1(host.cache.keys), values = slot_1(host.cache.values);
    CHECK(std::count(keys.begin(), keys.end(), 0.0) == 2 * 2 * 8 * (20 - 12));  // 9 + 4 - 1 positions are stored
    tokens_of(*generation.decoder, 0, sequence_of(random_tokens(15, 2), 100));
    CHECK(slot_1(host.cache.keys) == keys);
    CHECK(slot_1(host.cache.values) == values);
}

TEST_CASE("a logit that is not finite ends with the row and the position") {
    const ModelConfig model = tiny_model();
    Generation generation(model, {.batch = 2, .context = 20}, kFloat32);
    generation.decoder->start(1, sequence_of(random_tokens(4, 1), 10));
    CHECK(generation.decoder->advance(1)[1].tokens.size() == 1);
    textbook::Weights weights = textbook::random_weights(model, 7);
    weights.at("model.norm.weight")[0] = std::nan("");
    generation.run.set_weights(weights);
    CHECK_THROWS_AS(generation.decoder->advance(1), NonFiniteError);
    generation.decoder->start(1, sequence_of(random_tokens(4, 1), 10));
    CHECK_THAT(message_of([&] { generation.decoder->advance(1); }),
               Contains("the logit of token 0 is not finite, at position 4 of the sequence in row 1"));
    CHECK(generation.decoder->advance(1)[1].state == State::idle);
}

TEST_CASE("a sequence that does not fit is refused with what it has and what there is room for") {
    Generation generation(tiny_model(), {.batch = 2, .context = 20}, kFloat32);
    const auto refused = [&](int row, const SequenceStart& sequence) {
        return message_of([&] { generation.decoder->start(row, sequence); });
    };
    CHECK_THAT(refused(2, sequence_of({1}, 1)), Contains("no row 2") && Contains("there are 2"));
    CHECK_THAT(refused(0, sequence_of({}, 1)), Contains("at least one token"));
    CHECK_THAT(refused(0, sequence_of(random_tokens(20, 1), 1)), Contains("20 tokens") && Contains("up to 19"));
    CHECK_THAT(refused(0, sequence_of({1}, 0)), Contains("at least 1"));
    CHECK_THAT(refused(0, sequence_of({1, 37}, 1)), Contains("token 1 of the prompt is 37"));
    SequenceStart many = sequence_of({1}, 1);
    many.end_tokens.assign(33, 2);
    CHECK_THAT(refused(0, many), Contains("33 end tokens"));
}
