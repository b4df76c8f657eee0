// All waits of the fused decode kernel end, however late a warp comes, and nobody reads what is not meant for him: on a
// model of the kernel's warps.
#include "kernels/hopper/decode/lower.h"
#include "tests/catch.h"
#include "tests/kernels/decode_list.h"
#include "tests/kernels/decode_model.h"

using namespace coda;
using namespace coda::hopper::decode;
using namespace coda::test;
using Catch::Contains;

namespace {

struct Case {
    DecodeSizes sizes;
    std::vector<int> lengths;
};

/// One part and eight, one slice and many, slices that are kept and that are fetched for two tiles, idle sequences,
/// splits, several tiles per SM and none.
const Case kCases[] = {
    {{}, {1}},
    {{.layers = 3, .width = 16, .feed_forward = 16, .heads = 3, .kv_heads = 3, .context = 5000}, {4400}},
    {{.batch = 3, .layers = 2, .width = 528, .feed_forward = 1040, .heads = 8, .kv_heads = 2}, {290, 0, 64}},
    {{.batch = 8, .layers = 2, .width = 80, .feed_forward = 144, .context = 700}, {1, 0, 2, 64, 65, 129, 257, 520}},
    {{.batch = 2, .layers = 2, .width = 1088, .feed_forward = 4624, .heads = 8, .kv_heads = 1, .head_dim = 128},
     {0, 33}},
    {{.batch = 5, .layers = 2, .width = 208, .feed_forward = 4624}, {1, 0, 2, 64, 65}},
};

ModelOptions options_of(const Case& c, unsigned seed) {
    ModelOptions options{.lengths = c.lengths, .greedy = {}, .seed = seed};
    for (std::size_t b = 0; b < c.lengths.size(); ++b) options.greedy.push_back((b + seed) % 2 == 0);
    return options;
}

}  // namespace

TEST_CASE("fused decode: every wait ends, and every read finds what it needs, in any order of the warps") {
    for (const Case& c : kCases) {
        const DecodeList list(c.sizes);
        for (const int grid : {1, 2, 13, 132}) {
            const DecodeProgram program = lower(list.schedule, list.buffers.memory(), grid);
            for (unsigned seed = 1; seed <= 3; ++seed)
                for (const double late : {0.0, 0.1, 0.5, 0.95}) {
                    CAPTURE(c.sizes.width, c.sizes.batch, grid, seed, late);
                    CHECK_NOTHROW(DecodeModel(program, options_of(c, seed)).run(late));
                }
        }
    }
}

TEST_CASE("fused decode: the model of its waits finds a word that comes before the one before it was read") {
    const Case& c = kCases[3];
    const DecodeList list(c.sizes);
    const DecodeProgram program = lower(list.schedule, list.buffers.memory(), 132);
    ModelOptions options = options_of(c, 1);
    options.idle_words = true;
    CHECK_THROWS_WITH(DecodeModel(program, options).run(0.5), Contains("its input") && Contains("overwritten"));
}
