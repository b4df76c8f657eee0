// The optional members of an op, by name; kernels/core/op.h says what each of them means.
//
// An op lists those that it has: `static constexpr Traits traits{Trait::flops, Trait::tolerance};`. kernels/ops.h
// compares the list of each op with its members, so that a misspelt or forgotten member does not compile. Interpreters
// ask the list.
#pragma once

#include <cstdint>

namespace coda {

#define CODA_TRAITS(X) \
    X(between_ranks)   \
    X(bytes_of)        \
    X(codes_only)      \
    X(contraction)     \
    X(flops)           \
    X(in_place)        \
    X(layout)          \
    X(part_of)         \
    X(position_bytes)  \
    X(result)          \
    X(scalars_of_a)    \
    X(scratch_bytes)   \
    X(storage_only)    \
    X(takes_f8)        \
    X(tolerance)       \
    X(w)               \
    X(work)

#define CODA_TRAIT(name) name,
enum class Trait : std::uint8_t { CODA_TRAITS(CODA_TRAIT) };
#undef CODA_TRAIT

/// A set of traits.
class Traits {
  public:
    template <class... Names>
    explicit constexpr Traits(Names... names) : bits_((bit(names) | ... | 0U)) {}
    constexpr bool has(Trait trait) const { return (bits_ & bit(trait)) != 0; }

  private:
    static constexpr std::uint32_t bit(Trait trait) { return 1U << static_cast<unsigned>(trait); }
    std::uint32_t bits_;
};

/// Whether an op lists a trait exactly where it has the member of that name.
template <class Op>
constexpr bool is_listed(Trait trait) {
    switch (trait) {
// clang-format off
#define CODA_TRAIT(name) \
    case Trait::name: return Op::traits.has(trait) == requires { &Op::name; };
        CODA_TRAITS(CODA_TRAIT)
#undef CODA_TRAIT
        // clang-format on
    }
    return false;
}

/// An op that needs memory of its own says how much.
template <class Op>
constexpr bool sizes_scratch() {
    return Op::traits.has(Trait::scratch_bytes) == requires { &Op::scratch; };
}

/// Does not compile where the list differs from the members.
template <class Op>
struct CheckedTraits {
#define CODA_TRAIT(name)                      \
    static_assert(is_listed<Op>(Trait::name), \
                  "`traits` of the op must list " #name " exactly where it has that member");
    CODA_TRAITS(CODA_TRAIT)
#undef CODA_TRAIT
    static_assert(sizes_scratch<Op>(), "an op must have scratch_bytes() exactly where it has the operand `scratch`");
    static constexpr bool value = true;
};

#undef CODA_TRAITS

}  // namespace coda
