// Attention of the Hopper executor against cpu::run in double, on a Hopper GPU.
#include "kernels/ops/attention/test_hopper_comparison.h"

using namespace coda;
using namespace coda::attention_comparison;
using test::has_hopper;

TEST_CASE("attention agrees with the CPU", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const std::int64_t seq_len : {1, 17, 128, 129, 300, 1000, 2048})
            for (const bool documents : {false, true}) {
                const std::int64_t batch = seq_len < 2048 ? 2 : 1;
                check({batch, seq_len, 2, 2, head_dim, documents});
                check({batch, seq_len, 4, 1, head_dim, documents});
                check({1, seq_len, 8, 1, head_dim, documents});
            }
}

TEST_CASE("attention over many tiles, with groups that are no power of two", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128}) {
        check({3, 2048, 4, 2, head_dim, false});
        check({2, 1000, 6, 2, head_dim, false});
        check({1, 1000, 14, 2, head_dim, true});
    }
}

// 240 key blocks, more than the GPU has SMs.
TEST_CASE("attention where CTAs take more than one key block", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const bool documents : {false, true}) check({12, 600, 4, 4, head_dim, documents});
}

// With a norm of heads the CTAs of the pass over dQ take groups of four heads, or three, of a tile. There are more
// groups than its 264 CTAs, so some take a second group, of another sequence. Where a sequence has five tiles, which do
// not divide 264, it is of another tile too, with other positions.
TEST_CASE("attention where the pass over dQ takes several tiles", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128}) {
        check({140, 129, 4, 2, head_dim, false});
        check({140, 129, 3, 1, head_dim, true});
        check({56, head_dim == 64 ? 513 : 257, 4, 2, head_dim, false});
    }
}

TEST_CASE("attention of more sequences than a grid has along z", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const bool documents : {false, true}) check({65535 + 3000, 2, 1, 1, 64, documents});
}

TEST_CASE("attention keeps to its rows where matrices have gaps", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const bool documents : {false, true})
            for (const std::int64_t gap : {8, 72}) check({2, 129, 4, 2, head_dim, documents, gap});
}

TEST_CASE("attention of large logits", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128}) check({1, 400, 2, 1, head_dim, false}, 10);
}

TEST_CASE("two runs of attention give the same bits", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const bool documents : {false, true}) {
            Problem problem({2, 2048, 16, 4, head_dim, documents});
            const Device device(problem.gpu);
            Bytes first, first_rope, first_norm, first_bias;
            for (int run = 0; run < 4; ++run) {
                const auto repeats = [&](const AttentionBackward& op, std::initializer_list<std::size_t> results,
                                         Bytes& expected) {
                    device.run(op, results, problem.gpu);
                    if (run == 0) expected = problem.gpu;
                    CHECK(problem.gpu == expected);
                };
                device.run(problem.small.forward, {cases::kO, cases::kLse}, problem.gpu);
                repeats(problem.small.backward, {cases::kDqkv}, first);
                repeats(problem.small.rope_backward, {cases::kDqkv, cases::kDot}, first_rope);
                repeats(problem.small.norm_backward, {cases::kDqkv, cases::kDot, cases::kDGain}, first_norm);
                repeats(problem.small.bias_backward, {cases::kDqkv, cases::kDot, cases::kDBias}, first_bias);
                problem.gpu = first;
            }
        }
}

TEST_CASE("attention's kernels wait for each other", "[gpu][attention]") {
    if (!has_hopper()) return;
    // The launches follow each other without pauses, so each may begin while its predecessor finishes. What one hands
    // to the next is poison until then.
    for (const std::int64_t head_dim : {64, 128}) {
        Problem problem({2, 1000, 8, 2, head_dim, true});
        const Device device(problem.gpu);
        device.run(problem.small.forward, {cases::kO, cases::kLse}, problem.gpu);
        const hopper::Launch forward = hopper::prepare(problem.small.forward, device.memory());
        const auto check_waits = [&](const AttentionBackward& op, std::initializer_list<std::size_t> results) {
            device.run(op, results, problem.gpu);
            const Bytes expected = problem.gpu;
            const hopper::Launch backward = hopper::prepare(op, device.memory());
            for (int run = 0; run < 10; ++run) {
                device.poison({cases::kO, cases::kLse, cases::kScratch}, problem.gpu);
                device.poison(results, problem.gpu);
                forward(nullptr);
                backward(nullptr);
                device.download({cases::kO, cases::kLse}, problem.gpu);
                device.download(results, problem.gpu);
                CHECK(problem.gpu == expected);
            }
        };
        check_waits(problem.small.backward, {cases::kDqkv});
        check_waits(problem.small.norm_backward, {cases::kDqkv, cases::kDot, cases::kDGain});
        check_waits(problem.small.bias_backward, {cases::kDqkv, cases::kDot, cases::kDBias});
    }
}
