#include "src/io/checksum.h"

#include <string>
#include <vector>

#include "src/io/files.h"
#include "tests/catch.h"

using namespace coda;

TEST_CASE("XXH64 has the published values") {
    CHECK(xxh64({}) == 0xef46db3751d8e999);
    CHECK(xxh64(bytes_of("a")) == 0xd24ec4f1a98c6e5b);
    CHECK(xxh64(bytes_of("abc")) == 0x44bc2cf5ad770999);
    CHECK(xxh64(bytes_of("Nobody inspects the spammish repetition")) == 0xfbcea83c8a378bf1);
}

TEST_CASE("XXH64 does not depend on how its input is divided") {
    std::vector<std::byte> bytes(200);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
    const std::span<const std::byte> all(bytes);
    for (std::size_t size = 0; size <= all.size(); ++size) {
        for (std::size_t part = 1; part <= 70; part += 3) {
            Xxh64 hash;
            for (std::size_t at = 0; at < size; at += part) hash.update(all.subspan(at, std::min(part, size - at)));
            REQUIRE(hash.digest() == xxh64(all.first(size)));
        }
    }
}

TEST_CASE("XXH64 changes with every single bit") {
    std::vector<std::byte> bytes(77, std::byte{0x5a});
    const std::uint64_t before = xxh64(bytes);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        const auto mask = static_cast<std::byte>(1 << (bit % 8));
        bytes[bit / 8] ^= mask;
        REQUIRE(xxh64(bytes) != before);
        bytes[bit / 8] ^= mask;
    }
}
