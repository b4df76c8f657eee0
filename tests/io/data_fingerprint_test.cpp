#include "src/io/data_fingerprint.h"

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/io/test_files.h"

using namespace coda;
namespace fs = std::filesystem;

namespace {

TokenRanges ranges_of(const std::vector<fs::path>& paths) {
    TokenRanges ranges;
    for (const fs::path& path : paths) {
        auto file = std::make_shared<const TokenFile>(path, 256);
        const std::int64_t count = file->count();
        ranges.push_back({std::move(file), 0, count});
    }
    return ranges;
}

}  // namespace

TEST_CASE("a fingerprint tells files apart by name, size and contents") {
    const ScratchFolder scratch;
    const fs::path a = scratch.path() / "a.txt", b = scratch.path() / "b.txt", c = scratch.path() / "c.txt";
    const std::string large(1 << 20, 'x');
    put(a, "small");
    put(b, large);
    const nlohmann::json before = data_fingerprint(ranges_of({a, b, a}));
    REQUIRE(before.size() == 2);  // each file once
    CHECK(before[1].at("bytes") == large.size());

    const auto changes = [&](const std::vector<fs::path>& paths) {
        return compare_data(before, data_fingerprint(ranges_of(paths)));
    };
    CHECK(changes({b, a}).changed.empty());
    put(c, "more");
    CHECK(changes({a, b, c}).added == std::vector<std::string>{c.string()});
    CHECK(changes({a}).removed == std::vector<std::string>{b.string()});
    CHECK(changes({a, b, c}).changed.empty());

    // The first, the last and a block in the middle of 64; and every byte of a small file.
    for (const std::size_t at : {std::size_t{0}, large.size() - 1, (large.size() - 4096) * 31 / 63 + 9}) {
        std::string other = large;
        other[at] = 'y';
        put(b, other);
        REQUIRE(changes({a, b}).changed.size() == 1);
        CHECK(contains(changes({a, b}).changed[0], "b.txt had 1048576 bytes and has 1048576, with other contents"));
    }
    put(b, large + "x");
    CHECK(contains(changes({a, b}).changed.at(0), "has 1048577"));
    put(b, large);
    for (std::size_t at = 0; at < 5; ++at) {
        std::string other = "small";
        other[at] = 'y';
        put(a, other);
        CHECK(changes({a, b}).changed.size() == 1);
    }
}
