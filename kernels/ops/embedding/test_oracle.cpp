// The oracle of the embedding against right and wrong results.
#include "tests/hopper/oracle_judge.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle judges the embedding and its gradient", "[gpu][oracle]") {
    if (!has_hopper()) return;
    for (const auto& [table, has_positions, centred] : {std::tuple{DType::bf16, false, false},
                                                        {DType::f32, false, false},
                                                        {DType::bf16, true, false},
                                                        {DType::f32, true, false},
                                                        {DType::f32, true, true}}) {
        Operands forward;
        Embed embed;
        embed.tokens = forward.add(DType::i32, 1, 300, Fill::positions, 96);
        embed.table = forward.add(table, 96, 256, Fill::normal, 0.02);
        if (has_positions) {
            embed.positions = forward.add(DType::i32, 1, 300, Fill::positions, 40);
            embed.position_table = forward.add(DType::bf16, 40, 256, Fill::normal, 0.02);
        }
        embed.x = forward.add(DType::bf16, 300, 256, Fill::nothing);
        embed.rstd = forward.result(300);
        embed.eps = 1e-5;
        embed.centred = centred;
        judge(forward, embed, "Embed", 1 << 20, {"rstd"});
    }

    Operands gradient;
    EmbedBackward backward;
    backward.tokens = gradient.add(DType::i32, 1, 300, Fill::positions, 96);
    backward.dx = gradient.add(DType::bf16, 300, 256, Fill::normal);
    backward.grad = gradient.add(DType::f32, 1000, 256, Fill::normal, 0.1);
    backward.scratch = gradient.scratch(backward.scratch_bytes());
    judge(gradient, backward, "EmbedBackward", 1 << 16);

    Operands zeros;
    Zero zero;
    zero.out = zeros.add(DType::f32, 100, 256, Fill::normal, 1, 8);
    judge(zeros, zero, "Zero");
}
