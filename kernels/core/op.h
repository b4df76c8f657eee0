// The parts of op structs besides operands, and the traits that an op may state.
//
// An op is a struct with `name` and `operands`. Interpreters that need no kernel (costs, the oracle's report, the
// benchmark's floor) read these members, each optional; `traits` lists those that an op has (kernels/core/traits.h):
//   w                the operand by which a GEMM multiplies its operand a (M, K)
//   work             Work::gemm or Work::attention; an op with operands a and w is a GEMM by default
//   flops()          floating-point operations; 2 M N K for an op with operands a (M, K) and w
//   bytes_of(view)   bytes of an operand that the op moves, where it does not move all of them
//   position_bytes() bytes that the op reads for each position of a sequence and once per step of generation, of
//                    most_positions() at most
//   layout           how a GEMM reads w, where that is not out_in; w in FP8 is always out_in
//   result()         the operand that takes the GEMM's accumulators; absent where none of that shape is stored
//   scalars_of_a()   what turns the stored a into the tensor that it stands for; absent where it is that tensor
//   contraction()    terms per sum of the GEMM; for an op with operands a and w, K of a
//   scratch_bytes()  bytes that the operand `scratch` must have; 0 where it may be absent. Reads shapes and dtypes of
//                    the other operands, which must be set. Only bf16 storage runs on Hopper, so ops of other storage
//                    types need none
//   tolerance(...)   the oracle's tolerance for an operand, where that is not the rounding of its type
//   part_of(name)    the operand to which a part named in the oracle's report belongs
//   in_place()       pairs of an operand and a result that may be the same elements
//   takes_f8         the op has kernels for FP8 factors (kernels/core/factors.h)
//   storage_only     fields of operands that are absent where the factors are FP8, and codes_only, where they are not
//   between_ranks    the op moves bytes between ranks (Memory::peers): it has no kernel, and no graph can hold it
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "kernels/core/integers.h"
#include "kernels/core/operand.h"
#include "kernels/core/tolerance.h"
#include "kernels/core/traits.h"

namespace coda {

/// The kind of an op: a GEMM on tensor cores, with or without an epilogue; attention; or neither.
enum class Work : std::uint8_t { gemm, attention, other };

/// How a GEMM reads its weight. Neither needs a transposed copy.
enum class WeightLayout : std::uint8_t {
    out_in,  // w is (N, K): acc = a wᵀ, the forward GEMM
    in_out,  // w is (K, N): acc = a w, the dgrad GEMM
};

/// The tensor is a, by rows, x times / over, and as a whole x factor; an absent one is 1.
struct TensorScalars {
    View times{}, over{};  // (1, M)
    View factor{};         // (1, 1)
};

/// Names of the parts of a Rounded. A Result in storage has the name of its rows.
struct RoundedNames {
    const char *scale, *rows, *columns, *amax;
};

/// Names of the parts of a GradientSum.
struct GradientSumNames {
    const char *partials, *gamma, *grad;
};

/// An operand of op type T with its name, or several operands in one field (Factor, Rounded, Result, an array of
/// GradientSum).
template <class T, class Member>
struct Field {
    const char* name;
    Member T::*member;
    const char* transposed;  // the operand's name where it is transposed codes
};
template <class T, class Member>
requires std::is_same_v<Member, Rounded> || std::is_same_v<Member, Result>
struct Field<T, Member> {
    RoundedNames names;
    Member T::*member;
};
template <class T, std::size_t count>
struct Field<T, std::array<GradientSum, count>> {
    std::array<GradientSumNames, count> names;
    std::array<GradientSum, count> T::*member;
};
template <class T, class Member>
constexpr Field<T, Member> field(const char* name, Member T::*member) {
    return {name, member, name};
}
template <class T, class Member>
constexpr Field<T, Member> field(const char* name, Member T::*member, const char* transposed) {
    return {name, member, transposed};
}
template <class T, class Member>
constexpr Field<T, Member> field(const RoundedNames& names, Member T::*member) {
    return {names, member};
}
template <class T, std::size_t count>
constexpr Field<T, std::array<GradientSum, count>> field(const std::array<GradientSumNames, count>& names,
                                                         std::array<GradientSum, count> T::*member) {
    return {names, member};
}

/// A list of fields: called with fn, it calls fn(Field) for every one of them. A closure, because std::tuple of as many
/// types takes several times as long to compile.
template <class... Entries>
constexpr auto fields(const Entries&... entries) {
    return [=](const auto& fn) { (fn(entries), ...); };
}

/// Calls fn(Field) for every field of a list of them.
template <class Fields, class Fn>
void for_each_field(const Fields& fields, const Fn& fn) {
    fields(fn);
}

template <class Member>
inline constexpr bool is_gradient_sums = false;
template <std::size_t count>
inline constexpr bool is_gradient_sums<std::array<GradientSum, count>> = true;

/// Calls fn(name, operand) for every operand of an op, present or not, by reference and with its type.
template <class T, class Fn>
void visit_operands(T& op, Fn&& fn) {
    const auto rounded = [&](const RoundedNames& names, auto& parts) {
        fn(names.scale, parts.scale);
        fn(names.rows, parts.rows);
        fn(names.columns, parts.columns);
        fn(names.amax, parts.amax);
    };
    for_each_field(std::remove_const_t<T>::operands, [&]<class Of, class Member>(const Field<Of, Member>& entry) {
        auto& member = op.*(entry.member);
        constexpr bool kConst = std::is_const_v<T>;
        if constexpr (std::is_same_v<Member, Rounded>) {
            rounded(entry.names, member);
        } else if constexpr (is_gradient_sums<Member>) {
            for (std::size_t i = 0; i < member.size(); ++i) {
                fn(entry.names[i].partials, member[i].partials);
                fn(entry.names[i].gamma, member[i].gamma);
                fn(entry.names[i].grad, member[i].grad);
            }
        } else if constexpr (std::is_same_v<Member, Result>) {
            fn(entry.names.rows, static_cast<std::conditional_t<kConst, const Out<Matrix>, Out<Matrix>>&>(member));
            rounded(entry.names, member.codes);
        } else if constexpr (std::is_same_v<Member, Factor>) {
            fn(entry.name, static_cast<std::conditional_t<kConst, const In<Matrix>, In<Matrix>>&>(member));
            fn("undo", member.undo);
        } else {
            fn(member.order == ColumnOrder::paired ? entry.transposed : entry.name, member);
        }
    });
}

/// Calls fn(RoundedNames, View, Rounded) for every result of an op that can be rounded: its place in storage, absent
/// where it has none, and its codes.
template <class T, class Fn>
void for_each_result(const T& op, Fn&& fn) {
    for_each_field(T::operands, [&]<class Of, class Member>(const Field<Of, Member>& entry) {
        if constexpr (std::is_same_v<Member, Rounded>) fn(entry.names, View{}, op.*(entry.member));
        if constexpr (std::is_same_v<Member, Result>) {
            const Result& result = op.*(entry.member);
            fn(entry.names, result, result.codes);
        }
    });
}

/// Calls fn(Rounded) for every result of an op that is rounded to FP8.
template <class T, class Fn>
void for_each_rounded(const T& op, Fn&& fn) {
    for_each_result(op, [&](const RoundedNames&, const View&, const Rounded& codes) {
        if (codes) fn(codes);
    });
}

/// Bytes of a table that are touched: at most one row per index.
inline std::int64_t gathered_bytes(const View& table, const View& indices) {
    View touched = table;
    if (indices.cols < table.rows) touched.rows = indices.cols;
    return touched.bytes();
}

}  // namespace coda
