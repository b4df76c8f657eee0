// The parts of op structs besides operands, and the traits that an op may state.
//
// An op is a struct with `name` and `operands`. Interpreters that need no kernel (costs, the oracle's report, the
// benchmark's floor) read these members, each optional:
//   work             Work::gemm or Work::attention; an op with operands a and w is a GEMM by default
//   flops()          floating-point operations; 2 M N K for an op with operands a (M, K) and w
//   bytes_of(view)   bytes of an operand that the op moves, where it does not move all of them
//   layout           how a GEMM reads w, where that is not out_in; w in FP8 is always out_in
//   result()         the operand that takes the GEMM's accumulators; absent where none of that shape is stored
//   contraction()    terms per sum of the GEMM; for an op with operands a and w, K of a
//   scratch_bytes()  bytes that the operand `scratch` must have; 0 where it may be absent. Reads shapes and dtypes of
//                    the other operands, which must be set. Only bf16 storage runs on Hopper, so ops of other storage
//                    types need none
//   tolerance(...)   the oracle's tolerance for an operand, where that is not the rounding of its type
//   part_of(name)    the operand to which a part named in the oracle's report belongs
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include "kernels/core/integers.h"
#include "kernels/core/operand.h"
#include "kernels/core/tolerance.h"

namespace coda {

/// The kind of an op: a GEMM on tensor cores, with or without an epilogue; attention; or neither.
enum class Work : std::uint8_t { gemm, attention, other };

/// How a GEMM reads its weight. Neither needs a transposed copy.
enum class WeightLayout : std::uint8_t {
    out_in,  // w is (N, K): acc = a wᵀ, the forward GEMM
    in_out,  // w is (K, N): acc = a w, the dgrad GEMM
};

/// An operand of op type T, with its field name.
template <class T, class Member>
struct Field {
    const char* name;
    Member T::*member;
};
template <class T, class Member>
constexpr Field<T, Member> field(const char* name, Member T::*member) {
    return {name, member};
}

/// Bytes of a table that are touched: at most one row per index.
inline std::int64_t gathered_bytes(const View& table, const View& indices) {
    View touched = table;
    if (indices.cols < table.rows) touched.rows = indices.cols;
    return touched.bytes();
}

}  // namespace coda
