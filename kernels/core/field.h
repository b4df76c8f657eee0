// What the op structs are made of besides operands.
#pragma once

#include <cstdint>
#include <tuple>

#include "kernels/core/operand.h"

namespace coda {

/// How a GEMM reads its weight. Neither needs a transposed copy.
enum class WeightLayout : std::uint8_t {
    out_in,  // w is (N, K): acc = a wᵀ, the forward product
    in_out,  // w is (K, N): acc = a w, the product of dgrad
};

/// An operand of op type T under its field name.
template <class T, class Member>
struct Field {
    const char* name;
    Member T::*member;
};
template <class T, class Member>
constexpr Field<T, Member> field(const char* name, Member T::*member) {
    return {name, member};
}

}  // namespace coda
