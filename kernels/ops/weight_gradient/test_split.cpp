// The plan of a weight gradient in parts: when it splits, and what scratch it takes.
#include "kernels/core/integers.h"
#include "kernels/ops/weight_gradient/op.h"
#include "tests/catch.h"

using namespace coda;

namespace {

WeightGradient gradient(std::int64_t out, std::int64_t in, std::int64_t tokens, DType storage = DType::bf16) {
    WeightGradient op;
    op.dy = View{0, storage, 0, tokens, out, out, 0};
    op.x = View{1, storage, 0, tokens, in, in, 0};
    return op;
}

}  // namespace

TEST_CASE("a weight gradient that fills the GPU is not cut into parts, nor one that Hopper kernels do not run") {
    for (const auto& [out, in] :
         {std::pair{2048, 2048}, std::pair{3072, 2048}, std::pair{16384, 2048}, std::pair{128256, 4096}}) {
        CHECK(gradient(out, in, 32768).parts() == 1);
        CHECK(gradient(out, in, 32768).scratch_bytes() == 0);
    }
    CHECK(gradient(768, 768, 32768, DType::f32).parts() == 1);
    // With few tokens the sum is not worth cutting.
    CHECK(gradient(64, 64, 256).parts() == 1);
}

TEST_CASE("a small weight gradient is cut into parts that fill the GPU once") {
    // 9 tiles of 256 x 256 for 66 clusters: seven parts.
    const WeightGradient op = gradient(768, 768, 32768);
    CHECK(op.parts() == 7);
    CHECK(op.part_rows() == 768);
    CHECK(op.scratch_bytes() == 7 * 768 * 768 * 4);
    // Rows are padded to whole tiles, so that the last tile of one part does not reach the next part.
    CHECK(gradient(264, 136, 4096).part_rows() == 512);
}

TEST_CASE("parts never take more than 64 MiB, and each has tokens") {
    for (const std::int64_t out : {8, 136, 768, 2048, 3072, 6144})
        for (const std::int64_t in : {8, 512, 768, 1536, 2048})
            for (const std::int64_t tokens : {1, 64, 1000, 8192, 65536}) {
                const WeightGradient op = gradient(out, in, tokens);
                const std::int64_t parts = op.parts();
                INFO(out << " x " << in << " over " << tokens << ": " << parts << " parts");
                CHECK((parts >= 1 && parts <= 16));
                CHECK(op.scratch_bytes() <= 64 << 20);
                if (parts > 1) CHECK(ceil_div(ceil_div(tokens, 64), parts) * (parts - 1) * 64 < tokens);
            }
}
