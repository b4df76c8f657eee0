// ChooseToken on the GPU against cpu::run: every byte of every operand, step after step.
#include <array>
#include <bit>
#include <random>
#include <set>

#include "kernels/core/integers.h"
#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"
#include "tests/hopper/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

using cases::Fill;

/// The op, with the contents of its buffers on the host.
struct Rows {
    ChooseToken op{};
    std::vector<cases::Buffer> buffers{};
    Bytes host{};

    Rows(std::int64_t sequences, std::int64_t vocab, DType dtype, std::int64_t gap) {
        const auto row = [&](const char* name, int value) {
            const View view = add(name, DType::i32, 1, sequences, 0);
            for (std::int64_t s = 0; s < sequences; ++s) set(view, 0, s, value);
            return view;
        };
        op.options = add("options", DType::i32, 1, ChooseToken::kOptionWords * sequences, 0);
        op.logits = add("logits", dtype, sequences, vocab, gap);
        op.end_tokens = add("end_tokens", DType::i32, sequences, 2, gap);
        op.limits = row("limits", 1000);
        op.seen = add("seen", DType::i32, sequences, ceil_div(vocab, std::int64_t{32}), gap);
        op.lengths = row("lengths", 1);
        op.positions = row("positions", 0);
        op.state = row("state", static_cast<int>(RowState::running));
        op.token = row("token", -7);
        op.status = row("status", -1);
        for (std::int64_t s = 0; s < sequences; ++s) {
            for (std::int64_t e = 0; e < 2; ++e) set(op.end_tokens, s, e, -1);
            for (std::int64_t word = 0; word < op.seen.cols; ++word) set(op.seen, s, word, 0);
        }
    }
    View add(const char* name, DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t gap) {
        const View view{static_cast<BufferId>(buffers.size()), dtype, 0, rows, columns, columns + gap, 0};
        buffers.push_back({name, view, Fill::nothing, 0, Access::inout});
        host.emplace_back(static_cast<std::size_t>(view.span_bytes()), std::byte{0x7f});
        return view;
    }
    template <class T>
    void put(const View& view, std::int64_t row, std::int64_t column, T value) {
        std::memcpy(host[static_cast<std::size_t>(view.buffer)].data() +
                        (row * view.ld + column) * static_cast<std::int64_t>(sizeof value),
                    &value, sizeof value);
    }
    void set(const View& view, std::int64_t row, std::int64_t column, int value) { put(view, row, column, value); }
    void set_logit(std::int64_t s, std::int64_t id, float value) {
        if (op.logits.dtype == DType::bf16)
            put(op.logits, s, id, Bf16(value));
        else
            put(op.logits, s, id, value);
    }
    void set_options(std::int64_t s, const ChoiceOptions& options) {
        const auto words = std::bit_cast<std::array<std::int32_t, ChooseToken::kOptionWords>>(options);
        for (std::size_t i = 0; i < words.size(); ++i)
            set(op.options, 0, ChooseToken::kOptionWords * s + static_cast<std::int64_t>(i), words[i]);
    }
    int of(const View& view, std::int64_t s) const {
        int value = 0;
        std::memcpy(&value, host[static_cast<std::size_t>(view.buffer)].data() + 4 * s, sizeof value);
        return value;
    }

    /// Runs `steps` times on both sides; `host` is then what both have.
    void check(int steps) {
        const cases::DeviceBuffers device(buffers, 1);
        const auto upload = [&] {
            for (std::size_t i = 0; i < buffers.size(); ++i)
                CUDA_CHECK(cudaMemcpy(device.memory().address(buffers[i].view), host[i].data(), host[i].size(),
                                      cudaMemcpyHostToDevice));
        };
        upload();
        const hopper::Launch launch = hopper::prepare(op, device.memory());
        for (int step = 0; step < steps; ++step) {
            cpu::run(op, memory_of(host));
            launch(nullptr);
            CUDA_CHECK(cudaDeviceSynchronize());
            const Bytes got = download(buffers, device.memory());
            for (std::size_t i = 0; i < buffers.size(); ++i) {
                INFO("step " << step << ", " << buffers[i].name << ", " << op.logits.cols << " tokens");
                REQUIRE((got[i] == host[i]));
            }
        }
    }
};

ChoiceOptions options_of(std::mt19937_64& random) {
    ChoiceOptions options;
    options.temperature = std::array{0.0f, 0.05f, 0.7f, 1.0f, 2.5f, 100.0f}[random() % 6];
    options.top_k = std::array{0, 0, 1, 5, 40, 5000}[random() % 6];
    options.top_p = std::array{1.0f, 1.0f, 0.0f, 0.5f, 0.95f}[random() % 5];
    options.min_p = std::array{0.0f, 0.0f, 0.02f, 1.0f}[random() % 4];
    options.repetition_penalty = std::array{1.0f, 1.3f, 0.5f}[random() % 3];
    options.seed = random();
    return options;
}

}  // namespace

TEST_CASE("ChooseToken chooses on the GPU what it chooses on the CPU", "[gpu]") {
    if (!has_hopper()) return;
    std::mt19937_64 random(19);
    for (const DType dtype : {DType::f32, DType::bf16})
        for (const std::int64_t vocab : {1, 2, 31, 32, 33, 511, 512, 513, 1003, 16385, 128256})
            for (int turn = 0; turn < (vocab > 10000 ? 3 : 12); ++turn) {
                Rows rows(8, vocab, dtype, turn % 2 == 0 ? 0 : 5);
                for (std::int64_t s = 0; s < 8; ++s) {
                    rows.set_options(s, options_of(random));
                    const double spread = std::array{0.0, 0.5, 3.0, 1e4}[random() % 4];
                    const bool whole = random() % 2 == 0;  // with many equal logits
                    std::normal_distribution<double> normal(0, 1);
                    for (std::int64_t id = 0; id < vocab; ++id) {
                        const double value = spread * normal(random);
                        rows.set_logit(s, id, static_cast<float>(whole ? std::round(value) : value));
                    }
                }
                rows.check(4);
            }
}

TEST_CASE("ChooseToken on the GPU ends, fails and skips rows as the CPU does", "[gpu]") {
    if (!has_hopper()) return;
    Rows rows(6, 1000, DType::f32, 3);
    std::mt19937_64 random(23);
    std::normal_distribution<float> normal(0, 2);
    for (std::int64_t s = 0; s < 6; ++s) {
        rows.set_options(s, {.temperature = s == 4 ? 0.0f : 1.0f});
        for (std::int64_t id = 0; id < 1000; ++id) rows.set_logit(s, id, normal(random));
    }
    rows.set_logit(0, 700, 90);  // its token, which ends it
    rows.set(rows.op.end_tokens, 0, 1, 700);
    rows.set(rows.op.limits, 0, 1, 2);
    for (const std::int64_t id : {999, 513, 800}) rows.set_logit(2, id, std::numeric_limits<float>::quiet_NaN());
    rows.set_logit(4, 0, -std::numeric_limits<float>::infinity());
    rows.set(rows.op.state, 0, 3, static_cast<int>(RowState::idle));
    rows.check(3);
    const auto state = [&](std::int64_t s) { return static_cast<RowState>(rows.of(rows.op.state, s)); };
    CHECK(state(0) == RowState::ended);
    CHECK(rows.of(rows.op.token, 0) == 700);
    CHECK(state(1) == RowState::length);
    CHECK(state(2) == RowState::failed);
    CHECK(rows.of(rows.op.status, 2) == 513);
    CHECK(state(3) == RowState::idle);
    CHECK(rows.of(rows.op.token, 3) == -7);
    CHECK(state(4) == RowState::failed);
    CHECK(rows.of(rows.op.status, 4) == 0);
    CHECK(state(5) == RowState::running);
}

TEST_CASE("ChooseToken on the GPU without the optional operands", "[gpu]") {
    if (!has_hopper()) return;
    Rows rows(2, 300, DType::bf16, 0);
    std::mt19937_64 random(29);
    std::normal_distribution<float> normal(0, 2);
    for (std::int64_t s = 0; s < 2; ++s) {
        rows.set_options(s, {.top_p = 0.9f, .repetition_penalty = 3, .seed = 5});
        for (std::int64_t id = 0; id < 300; ++id) rows.set_logit(s, id, normal(random));
    }
    rows.op.end_tokens = {};
    rows.op.seen = {};
    rows.op.positions = {};
    rows.check(8);
}
