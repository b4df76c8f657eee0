// LinearCrossEntropy on the GPU against cpu::run: vocabularies, limits, NaN. gemm_check.h has the tolerances.
#include "tests/hopper/gemm_check.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr const char* kCrossEntropies[] = {"LinearCrossEntropy", "LinearCrossEntropy rstd"};

}  // namespace

// 50257 tokens in a vocabulary padded to 50304, and all of 128256: exponentials beyond the vocabulary are 0, and no sum
// includes them.
TEST_CASE("cross-entropy of real vocabularies", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kCrossEntropies) {
        check({program, 264, 50304, 72}, {.vocab = 50257});
        check({program, 8, 50304, 72}, {.vocab = 50257, .evaluation = true});
        check({program, 72, 128256, 64}, {});
        check({program, 264, 256, 72}, {.vocab = 128});  // one tile holds only padding
    }
}

// Distances of hundreds: some exponentials reach the limit, others are 0, and the sums are finite.
TEST_CASE("cross-entropy of logits that are far from their target's", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kCrossEntropies)
        for (const bool evaluation : {false, true})
            check({program, 300, 1040, 72}, {.vocab = 1030, .evaluation = evaluation, .distance = 150});
}

TEST_CASE("sums of exponentials that are not stored have the same bits", "[gpu]") {
    if (!has_hopper()) return;
    for (const char* program : kCrossEntropies)
        for (const std::int64_t vocab : {1040, 1030}) {
            std::vector<std::byte> sums[2];
            for (const bool evaluation : {false, true}) {
                const GemmCase made =
                    cases::make_case({program, 300, 1040, 80}, {.vocab = vocab, .evaluation = evaluation});
                const cases::DeviceBuffers device(made.buffers, 5);
                hopper::prepare(made.op, device.memory())(nullptr);
                CUDA_CHECK(cudaDeviceSynchronize());
                sums[evaluation] = download(made.buffers, device.memory()).back();
            }
            CHECK(sums[0] == sums[1]);
        }
}

// A NaN among the logits makes its exponential and its row's sums NaN, not the limit.
TEST_CASE("cross-entropy passes NaN on", "[gpu]") {
    if (!has_hopper()) return;
    const GemmCase made = cases::make_case({"LinearCrossEntropy rstd", 200, 640, 72});
    const cases::DeviceBuffers device(made.buffers, 5);
    const Bf16 nan(NAN);
    const View row = made.a.row_slice(77, 1);
    CUDA_CHECK(cudaMemcpy(device.memory().address(row), &nan, sizeof nan, cudaMemcpyHostToDevice));
    hopper::prepare(made.op, device.memory())(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    const Bytes got = download(made.buffers, device.memory());
    const auto& op = std::get<LinearCrossEntropy>(made.op);
    for (std::int64_t column = 0; column < 640; ++column) CHECK(std::isnan(element(got, op.exponentials, 77, column)));
    for (std::int64_t tile = 0; tile < op.sums.rows; ++tile)
        for (std::int64_t i = 0; i < 400; ++i) CHECK(std::isnan(element(got, op.sums, tile, i)) == (i / 2 == 77));
}
