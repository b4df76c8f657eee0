// The plan of a weight gradient in parts: when it splits, in which tile, and what scratch it takes.
#include "kernels/core/integers.h"
#include "kernels/ops/weight_gradient/split.h"
#include "tests/catch.h"

using namespace coda;

namespace {

constexpr int kWide = 0, kNarrow = 1, kTall = 2;
constexpr int kF8Narrow = 0, kF8Small = 1;

WeightGradient gradient(std::int64_t out, std::int64_t in, std::int64_t tokens, DType storage = DType::bf16) {
    WeightGradient op;
    const auto operand = [&](int buffer, DType dtype, std::int64_t width) {
        return is_f8(dtype) ? View{buffer, dtype, 0, width, tokens, tokens, 0}
                            : View{buffer, dtype, 0, tokens, width, width, 0};
    };
    op.dy = operand(0, storage, out);
    op.x = operand(1, is_f8(storage) ? DType::f8e4m3 : storage, in);
    return op;
}

struct Planned {
    std::int64_t out, in;
    int tile;
    std::int64_t parts;
};

void check_plans(std::initializer_list<Planned> plans, std::int64_t tokens, DType storage = DType::bf16) {
    for (const auto& [out, in, tile, parts] : plans) {
        const Split split = split_of(gradient(out, in, tokens, storage));
        INFO(out << " x " << in << " over " << tokens << ": tile " << split.tile << ", " << split.parts << " parts");
        CHECK(split.tile == tile);
        CHECK(split.parts == parts);
    }
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
    CHECK(split_of(op).part_rows == 768);
    CHECK(op.scratch_bytes() == 7 * 768 * 768 * 4);
    // Rows are padded to whole tiles, so that the last tile of one part does not reach the next part.
    CHECK(split_of(gradient(264, 136, 4096)).part_rows % 256 == 0);
    CHECK(split_of(gradient(576, 1536, 32768)).part_rows == 576);
}

// qkv, attn_out, gate_up, down and head of each model, over its micro-batch.
TEST_CASE("tile and parts of the weight gradients of models") {
    constexpr std::int64_t kTokens = 32768;
    // SmolLM2-135M: 192 divides 576, of which 256 leaves a quarter of the work beyond the gradient.
    check_plans({{960, 576, kNarrow, 5},
                 {576, 576, kNarrow, 7},
                 {3072, 576, kNarrow, 7},
                 {576, 1536, kTall, 7},
                 {49152, 576, kNarrow, 1}},
                kTokens);
    // SmolLM2-360M
    check_plans({{1600, 960, kWide, 7},
                 {960, 960, kWide, 4},
                 {5120, 960, kNarrow, 3},
                 {960, 2560, kTall, 5},
                 {49152, 960, kNarrow, 1}},
                kTokens);
    // docs_100m: 768 x 2048 has 33 tiles of 256 x 192, which two parts make one full wave.
    check_plans({{1280, 768, kWide, 4},
                 {768, 768, kWide, 7},
                 {4096, 768, kNarrow, 1},
                 {768, 2048, kNarrow, 2},
                 {50264, 768, kWide, 1}},
                kTokens);
    // Qwen3-0.6B: 6144 rows are 32 tiles of 192, which with 4 of 256 columns make nearly two waves.
    check_plans({{4096, 1024, kWide, 1},
                 {1024, 2048, kWide, 2},
                 {6144, 1024, kTall, 1},
                 {1024, 3072, kNarrow, 1},
                 {151936, 1024, kWide, 1}},
                kTokens);
    // Llama-3.2-1B, Llama-3.2-3B and Llama-3.1-8B fill the GPU with whole sums, with half as many tokens too.
    for (const std::int64_t tokens : {16384, 32768}) {
        check_plans({{3072, 2048, kNarrow, 1},
                     {2048, 2048, kWide, 1},
                     {16384, 2048, kWide, 1},
                     {2048, 8192, kWide, 1},
                     {128256, 2048, kWide, 1}},
                    tokens);
        check_plans({{5120, 3072, kNarrow, 1},
                     {3072, 3072, kNarrow, 1},
                     {16384, 3072, kWide, 1},
                     {3072, 8192, kWide, 1},
                     {128256, 3072, kWide, 1}},
                    tokens);
        check_plans({{6144, 4096, kWide, 1},
                     {4096, 4096, kWide, 1},
                     {28672, 4096, kWide, 1},
                     {4096, 14336, kWide, 1},
                     {128256, 4096, kWide, 1}},
                    tokens);
    }
}

TEST_CASE("tile and parts of the weight gradients of models in FP8") {
    for (const DType format : {DType::f8e4m3, DType::f8e5m2}) {
        // SmolLM2-135M
        check_plans(
            {{960, 576, kF8Narrow, 5}, {576, 576, kF8Narrow, 7}, {3072, 576, kF8Small, 1}, {576, 1536, kF8Narrow, 5}},
            32768, format);
        // Llama-3.2-1B, Llama-3.2-3B and Llama-3.1-8B
        for (const std::int64_t tokens : {8192, 16384, 32768})
            for (const auto& [out, in] : {std::pair{3072, 2048},
                                          {2048, 2048},
                                          {16384, 2048},
                                          {2048, 8192},
                                          {5120, 3072},
                                          {3072, 3072},
                                          {16384, 3072},
                                          {3072, 8192},
                                          {6144, 4096},
                                          {4096, 4096},
                                          {28672, 4096},
                                          {4096, 14336}})
                CHECK(gradient(out, in, tokens, format).parts() == 1);
    }
}

TEST_CASE("a split keeps to its limits") {
    const WeightGradient op = gradient(576, 1536, 32768);
    for (const int tile : {kWide, kNarrow, kTall}) {
        CHECK(split_of(op, {.tile = tile}).tile == tile);
        CHECK(split_of(op, {.tile = tile}).parts > 1);
        const Split three = split_of(op, {.tile = tile, .parts = 3});
        CHECK(three.parts == 3);
        CHECK(three.part_rows == (tile == kTall ? 576 : 768));
        CHECK(three.scratch_bytes == 3 * three.part_rows * 1536 * 4);
        const Split little = split_of(op, {.tile = tile, .scratch_bytes = 3 * 768 * 1536 * 4});
        CHECK((little.parts > 1 && little.scratch_bytes <= 3 * 768 * 1536 * 4));
        CHECK(split_of(op, {.tile = tile, .scratch_bytes = 0}).parts == 1);
    }
    // Every tile of FP8 cuts these shapes too, with the scratch of the tile that is taken: the GPU's tests count on it.
    for (const auto& [out, in, tokens] : {std::tuple{576, 960, 8208}, {960, 576, 8192}})
        for (const int tile : {0, 1, 2}) {
            const WeightGradient codes = gradient(out, in, tokens, DType::f8e5m2);
            CHECK(split_of(codes, {.tile = tile}).tile == tile);
            CHECK(split_of(codes, {.tile = tile, .scratch_bytes = codes.scratch_bytes()}).parts > 1);
            for (const std::int64_t parts : {2, 3})
                CHECK(split_of(codes, {.tile = tile, .parts = parts, .scratch_bytes = codes.scratch_bytes()}).parts ==
                      parts);
            CHECK(split_of(codes, {.tile = tile, .scratch_bytes = 0}).parts == 1);
        }
    CHECK(split_of(op, {.parts = 17}).parts == 1);
    CHECK(split_of(op, {.parts = 1}).parts == 1);
}

TEST_CASE("parts never take more than 64 MiB, and each has tokens") {
    for (const auto& [storage, k_tile] : {std::pair{DType::bf16, 64}, {DType::f8e5m2, 128}})
        for (const std::int64_t out : {8, 136, 576, 768, 2048, 3072, 6144})
            for (const std::int64_t in : {8, 512, 576, 768, 1536, 2048})
                for (const std::int64_t tokens : {16, 64, 1008, 8192, 65536}) {
                    const WeightGradient op = gradient(out, in, tokens, storage);
                    const Split split = split_of(op);
                    const std::int64_t parts = op.parts();
                    INFO(name_of(storage) << ", " << out << " x " << in << " over " << tokens << ": " << parts);
                    CHECK((parts >= 1 && parts <= kMostParts && parts == split.parts));
                    CHECK(op.scratch_bytes() <= 64 << 20);
                    CHECK(op.scratch_bytes() == (parts > 1 ? parts * split.part_rows * in * 4 : 0));
                    if (parts > 1) CHECK(ceil_div(ceil_div(tokens, k_tile), parts) * (parts - 1) * k_tile < tokens);
                }
}
