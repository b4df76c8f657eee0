// Generation on the GPU, operation by operation in a graph per pass, compared with the same passes by cpu::run in bf16
// storage.
//
// Tolerance of logits: 2e-2 of their RMS. A wrong position, head or cached row shows at 1.
#include "src/engine/hopper_executor.h"
#include "tests/hopper/harness.h"
#include "tests/hopper/small_model.h"
#include "tests/model/pass_decoder.h"
#include "tests/model/sequences.h"

using namespace coda;
using namespace coda::test;

namespace {

struct Generation {
    ModelRun run;
    std::unique_ptr<BatchDecoder> decoder;

    Generation(const ModelConfig& model, const GenerationShape& shape, bool on_gpu)
        : run(model, {.batch = 1, .seq_len = 2, .passes = passes_of(Mode::generate), .generation = shape}, kMixedBf16) {
        on_gpu ? run.start(make_hopper_executor) : run.start();
        run.set_weights(coda::test::random_weights(model, 7));
        decoder = pass_decoder(run);
    }

    std::vector<double> logits(int row) {
        const std::vector<double> all = run.elements(run.schedules.host.sequences.logits.row_slice(row, 1));
        return {all.begin(), all.begin() + run.model.vocab_size};
    }
};

}  // namespace

TEST_CASE("the GPU decodes the logits of the CPU in bf16 storage, for 64 tokens", "[gpu]") {
    if (!has_hopper()) return;
    struct Case {
        std::int64_t head_dim;
        bool tied;
        bool norms = false;
        std::int64_t window = 0;
    };
    // The windows end within a part of 256 positions, and with one.
    for (const auto& [head_dim, tied, norms, window] : {Case{64, false}, Case{128, true}, Case{128, false, true},
                                                        Case{64, true, false, 50}, Case{128, false, false, 256}}) {
        const ModelConfig model = small_model(head_dim, tied, false, norms, window);
        const GenerationShape shape{.batch = 4, .context = 400};
        Generation cpu(model, shape, false), gpu(model, shape, true);
        const std::size_t prompts[] = {1, 130, 300};  // the fourth row is idle
        for (int row = 0; row < 3; ++row) {
            for (Generation* each : {&cpu, &gpu})
                each->decoder->start(row,
                                     sequence_of(random_tokens(prompts[row], static_cast<std::uint64_t>(row)), 64));
        }
        for (int step = 0; step < 64; ++step) {
            const std::vector<SequenceAdvance> made = cpu.decoder->advance(1);
            gpu.decoder->advance(1);
            for (int row = 0; row < 3; ++row) {
                INFO("heads of " << head_dim << ", window " << window << ", row " << row << ", token " << step);
                CHECK(relative_rms(gpu.logits(row), cpu.logits(row)) < 2e-2);
                // Both continue with the CPU's token.
                gpu.run.executor->upload(part_of(gpu.run.schedules.host.sequences.token, row, 1),
                                         made[static_cast<std::size_t>(row)].tokens.data());
            }
        }
    }
}

TEST_CASE("the GPU's decoded logits are those after a prefill of the same text", "[gpu]") {
    if (!has_hopper()) return;
    const ModelConfig model = small_model(64, false);
    Generation gpu(model, {.batch = 2, .context = 300}, true);
    Tokens text = random_tokens(100, 3);
    const Tokens made = tokens_of(*gpu.decoder, 0, sequence_of(text, 100), 10);
    const std::vector<double> decoded = gpu.logits(0);
    text.insert(text.end(), made.begin(), made.end() - 1);
    gpu.decoder->start(1, sequence_of(text, 1));
    gpu.decoder->advance(1);
    CHECK(relative_rms(gpu.logits(1), decoded) < 2e-2);
}

TEST_CASE("a sequence on the GPU has the same bits by itself and with others, and in calls of any length", "[gpu]") {
    if (!has_hopper()) return;
    const ModelConfig model = small_model(64, true);
    const SequenceStart sequence = sequence_of(random_tokens(70, 1), 64);
    Generation alone(model, {.batch = 1, .context = 300}, true), batch(model, {.batch = 8, .context = 300}, true);
    const Tokens expected = tokens_of(*alone.decoder, 0, sequence, 1);
    const std::vector<double> logits = alone.logits(0);
    CHECK(tokens_of(*alone.decoder, 0, sequence, 32) == expected);
    for (const int row : {0, 5}) {
        for (int other = 0; other < 8; ++other) {
            const auto length = static_cast<std::size_t>(1 + 35 * other);
            if (other != row) batch.decoder->start(other, sequence_of(random_tokens(length, length), 5 + other));
        }
        CHECK(tokens_of(*batch.decoder, row, sequence, 7) == expected);
        CHECK(batch.logits(row) == logits);
    }
}

TEST_CASE("every operation of generation is what the oracle says", "[gpu]") {
    if (!has_hopper()) return;
    Generation gpu(small_model(128, true), {.batch = 3, .context = 300}, true);
    std::int64_t lines = 0;
    const auto checked = [&](Pass pass) {
        gpu.run.executor->run_checked(pass, [&](const OracleLine& line) {
            INFO(line.text);
            CHECK(line.ok);
            ++lines;
        });
    };
    const std::unique_ptr<BatchDecoder> decoder = pass_decoder(gpu.run, checked);
    decoder->start(0, sequence_of(random_tokens(200, 1), 10));
    decoder->start(2, sequence_of(random_tokens(20, 2), 10));
    decoder->advance(2);
    CHECK(lines > 100);
}
