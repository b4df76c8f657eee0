// The fused decode kernel where a step takes several tokens of a sequence: the bits of one step per token.
#include "tests/catch.h"
#include "tests/hopper/decode_on_gpu.h"

using namespace coda;
using namespace coda::test;

namespace {

/// A list for `rows_each` tokens of each sequence per step. Lists of the same sequences have the same weights and
/// caches, since these are drawn in the same order.
DecodeList list_of(DecodeSizes sizes, std::int64_t sequences, std::int64_t rows_each) {
    sizes.batch = sequences * rows_each;
    sizes.rows_each = rows_each;
    return DecodeList(sizes);
}

/// lengths: of the sequences, with the first token of the step; taken: the tokens of each in the step.
void require_bits_of_steps(const DecodeSizes& sizes, const std::vector<int>& lengths, const std::vector<int>& taken,
                           int grid = 0) {
    const auto sequences = static_cast<std::int64_t>(lengths.size());
    const std::int64_t rows_each = 8 / sequences;
    DecodeList one = list_of(sizes, sequences, 1), many = list_of(sizes, sequences, rows_each);
    for (std::int64_t row = 0; row < many.sizes.batch; ++row) many.set_row(row, {.length = 0, .choice = kGreedy}, 0);
    std::vector<std::vector<double>> expected(static_cast<std::size_t>(many.sizes.batch));
    for (std::int64_t j = 0; j < rows_each; ++j) {
        for (std::int64_t s = 0; s < sequences; ++s) {
            const auto at = static_cast<std::size_t>(s);
            const int length = j < taken[at] ? lengths[at] + static_cast<int>(j) : 0;
            const int token = j == 0 ? 11 + static_cast<int>(s) : static_cast<int>(one.buffers.get(one.token, 0, s));
            one.set_row(s, {.length = length, .choice = kGreedy}, length > 0 ? token : 0);
            many.set_row(s * rows_each + j, {.length = length, .choice = kGreedy}, length > 0 ? token : 0);
        }
        OnGpu(one).run({1});
        for (std::int64_t s = 0; s < sequences; ++s)
            expected[static_cast<std::size_t>(s * rows_each + j)] = logits_of(one, s);
    }
    OnGpu(many, {}, grid).run({1});
    for (std::int64_t s = 0; s < sequences; ++s)
        for (std::int64_t j = 0; j < taken[static_cast<std::size_t>(s)]; ++j) {
            CAPTURE(s, j);
            const std::int64_t row = s * rows_each + j;
            CHECK((logits_of(many, row) == expected[static_cast<std::size_t>(row)]));
        }
    for (std::size_t l = 0; l < one.keys.size(); ++l) {
        CHECK((one.buffers.bits(one.keys[l]) == many.buffers.bits(many.keys[l])));
        CHECK((one.buffers.bits(one.values[l]) == many.buffers.bits(many.values[l])));
    }
}

}  // namespace

TEST_CASE("fused decode: several tokens of a sequence in a step have the bits of one step per token", "[gpu]") {
    if (!has_hopper()) return;
    const DecodeSizes wide{.layers = 3, .width = 256, .feed_forward = 640, .heads = 8, .kv_heads = 2, .context = 1100};
    std::vector<DecodeSizes> all(9, wide);
    all[1].head_dim = 128;
    all[2].int4 = true;
    all[3].window = 66;
    all[4].bias = all[4].out_bias = true;
    all[5].head_norms = true;
    all[6].head_norms = true;
    all[6].head_dim = 128;
    all[6].window = 3;  // less than the tokens of a step
    all[7].int4 = true;
    all[7].head_dim = 128;
    all[8].kv_heads = 1;  // queries that come in two parts
    all[8].head_dim = 128;
    for (std::size_t i = 0; i < all.size(); ++i) {
        CAPTURE(i);
        // From the first position on, across blocks of 32 and 64 positions, where the number of splits changes (513 and
        // 1025 positions); fewer than could be.
        require_bits_of_steps(all[i], {1}, {8});
        require_bits_of_steps(all[i], {61}, {8});
        require_bits_of_steps(all[i], {509}, {8});
        require_bits_of_steps(all[i], {1021}, {8});
        require_bits_of_steps(all[i], {90}, {3});
        require_bits_of_steps(all[i], {127, 255}, {4, 4});
        require_bits_of_steps(all[i], {1090, 30}, {2, 1});
        require_bits_of_steps(all[i], {30, 31, 32, 33}, {2, 2, 1, 2}, 13);
    }
}

TEST_CASE("fused decode: a launch of several tokens of a sequence is one step", "[gpu]") {
    if (!has_hopper()) return;
    DecodeList list = list_of({}, 1, 8);
    for (std::int64_t row = 0; row < 8; ++row) list.set_row(row, {.length = 3 + static_cast<int>(row)}, 5);
    OnGpu gpu(list);
    CHECK_THROWS_WITH(
        gpu.fused.launch(2, nullptr),
        "decode: a launch of 2 steps, and a sequence has several tokens in each: such a launch is one step");
}
