// The same where rows do not see all earlier keys: documents, windows, padding.
#include "kernels/ops/attention/test_hopper_comparison.h"

using namespace coda;
using namespace coda::attention_comparison;
using test::has_hopper;

TEST_CASE("attention of one padded sequence, as in sampling", "[gpu][attention]") {
    if (!has_hopper()) return;
    // The text stands at the end of the sequence; a separator begins a new document; padding sees only itself.
    for (const std::int64_t head_dim : {64, 128})
        for (const std::int32_t padding : {0, 5, 16}) {
            std::vector<std::int32_t> starts(17, 0);
            for (std::int32_t t = padding; t < 17; ++t)
                starts[static_cast<std::size_t>(t)] = std::max(padding, t / 9 * 9);
            Problem problem({1, 17, 4, 2, head_dim, true}, 1, starts);
            check(problem);
        }
}

TEST_CASE("attention of documents that begin anywhere in a tile", "[gpu][attention]") {
    if (!has_hopper()) return;
    struct Case {
        std::int64_t seq_len, heads, kv_heads;
        std::vector<std::vector<std::int32_t>> begins;  // of each sequence's documents after the first
    };
    // Around the first and last rows of warpgroups and tiles; documents of more than 32 query tiles; and a warpgroup
    // that skips 0 to 9 blocks, after any number that it computes.
    const std::vector<Case> cases{
        {4700, 1, 1, {{4352}, {4416}, {}}},
        {1050, 3, 1, {{870}, {832}, {895}, {896}, {833}, {1}, {63}, {64}, {1049}}},
        {1152, 6, 2, {{1088}, {1087}, {1089}, {1024, 1088}, {960, 1025}, {1150, 1151}}},
        {1152, 3, 1, {{700}, {770}, {830}, {900}, {1030}, {800, 1100}}},
        {1088, 3, 1, {{640, 700}, {641, 767}, {1023, 1087}, {257, 900}, {448, 510, 575}, {830}}},
        {576, 1, 1, {{64}, {65}, {127}, {128}, {191}, {192}, {193}, {255}, {256}}}};
    for (const std::int64_t head_dim : {64, 128})
        for (const Case& each : cases) {
            std::vector<std::int32_t> starts;
            for (const std::vector<std::int32_t>& begins : each.begins)
                for (std::int32_t t = 0; t < each.seq_len; ++t)
                    starts.push_back(
                        t == 0 || std::find(begins.begin(), begins.end(), t) != begins.end() ? t : starts.back());
            const auto batch = static_cast<std::int64_t>(each.begins.size());
            Problem problem({batch, each.seq_len, each.heads, each.kv_heads, head_dim, true}, 1, starts);
            check(problem);
        }
}

TEST_CASE("attention in windows, with documents and without", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const std::int64_t seq_len : {129, 1000})
            for (const std::int64_t window : {1, 2, 64, 127, 128, 129, 130, 300, 999})
                for (const std::int64_t document : {seq_len, std::int64_t{170}}) {
                    std::vector<std::int32_t> first;
                    for (std::int64_t t = 0; t < 2 * seq_len; ++t) {
                        const std::int64_t position = t % seq_len;
                        first.push_back(
                            static_cast<std::int32_t>(std::max(position / document * document, position - window + 1)));
                    }
                    INFO("window " << window << ", documents of " << document);
                    Problem problem({2, seq_len, 4, 2, head_dim, true}, 1, first);
                    check(problem);
                }
}
