// An op's list of traits against its members. That every op passes is a static_assert of kernels/ops.h.
#include "kernels/core/traits.h"

#include <cstdint>

#include "tests/catch.h"

using namespace coda;

namespace {

struct Listed {
    static constexpr Traits traits{Trait::flops, Trait::scratch_bytes};
    double flops() const { return 0; }
    std::int64_t scratch_bytes() const { return 0; }
    int scratch = 0;
};

struct Misspelt {
    static constexpr Traits traits{Trait::flops, Trait::scratch_bytes};
    double flop() const { return 0; }
    std::int64_t scratch_byte() const { return 0; }
    int scratch = 0;
};

struct Forgotten {
    static constexpr Traits traits{};
    double flops() const { return 0; }
    int scratch = 0;
};

}  // namespace

TEST_CASE("an op lists the traits whose members it has") {
    STATIC_REQUIRE(is_listed<Listed>(Trait::flops));
    STATIC_REQUIRE(is_listed<Listed>(Trait::scratch_bytes));
    STATIC_REQUIRE(is_listed<Listed>(Trait::tolerance));
    STATIC_REQUIRE(sizes_scratch<Listed>());
    STATIC_REQUIRE(CheckedTraits<Listed>::value);
}

TEST_CASE("a misspelt member and one that is not listed are seen") {
    STATIC_REQUIRE_FALSE(is_listed<Misspelt>(Trait::flops));
    STATIC_REQUIRE_FALSE(is_listed<Misspelt>(Trait::scratch_bytes));
    STATIC_REQUIRE_FALSE(is_listed<Forgotten>(Trait::flops));
    STATIC_REQUIRE_FALSE(sizes_scratch<Forgotten>());
}
