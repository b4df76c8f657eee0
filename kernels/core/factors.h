// The two factors of an op's product, in storage or as FP8 codes, and what goes with either: one check for every
// interpreter.
#pragma once

#include "kernels/core/op.h"
#include "kernels/core/operand_check.h"

namespace coda {

/// Whether the op has kernels for FP8 factors too.
template <class T>
inline constexpr bool takes_f8 = T::traits.has(Trait::takes_f8);

/// The factor that brings what belongs to both, w or a wgrad's x, and the other one.
template <class T>
const Factor& second_factor(const T& op) {
    if constexpr (T::traits.has(Trait::w))
        return op.w;
    else
        return op.x;
}
template <class T>
const View& first_factor(const T& op) {
    if constexpr (T::traits.has(Trait::w))
        return op.a;
    else
        return op.dy;
}

template <class T>
bool has_codes(const T& op) {
    return is_f8(first_factor(op).dtype);
}

/// Throws Error unless the factors are of one kind and have what goes with it: with codes `undo`, results that are
/// rounded where they can be, and nothing of `storage_only`; without codes none of that, and nothing of `codes_only`.
template <class T>
void require_factors(const T& op) {
    if constexpr (takes_f8<T>) {
        const View& first = first_factor(op);
        const Factor& second = second_factor(op);
        constexpr bool kWgrad = !T::traits.has(Trait::w);
        constexpr const char *kFirst = kWgrad ? "dy" : "a", *kSecond = kWgrad ? "x" : "w";
        require(is_f8(first.dtype) == is_f8(second.dtype), op.name, ": ", kFirst, " is ", name_of(first.dtype), " and ",
                kSecond, " is ", name_of(second.dtype), "; FP8 goes with FP8");
        const bool codes = has_codes(op);
        if (codes) require_operand(op.name, "undo", second.undo, 1, 1, DType::f32);
        const auto only_with_codes = [&](const char* operand, bool present) {
            require(codes || !present, op.name, ": ", operand, " goes with FP8 factors, and ", kFirst, " is ",
                    name_of(first.dtype));
        };
        const auto only_with_storage = [&](const char* operand, bool present) {
            require(!codes || !present, op.name, ": ", operand, " must be absent: ", kFirst, " is ",
                    name_of(first.dtype));
        };
        only_with_codes("undo", static_cast<bool>(second.undo));
        for_each_result(op, [&](const RoundedNames& names, const View& storage, const Rounded& rounded) {
            only_with_storage(names.rows, static_cast<bool>(storage));
            only_with_codes(names.scale, static_cast<bool>(rounded));
        });
        if constexpr (T::traits.has(Trait::storage_only))
            for_each_field(T::storage_only, [&](const auto& entry) {
                only_with_storage(entry.name, static_cast<bool>(op.*(entry.member)));
            });
        if constexpr (T::traits.has(Trait::codes_only))
            for_each_field(T::codes_only, [&](const auto& entry) {
                only_with_codes(entry.name, static_cast<bool>(op.*(entry.member)));
            });
    }
}

}  // namespace coda
