// The cases of an op that tests, oracle and benchmarks run. Each op's folder specialises cases_of. Tests, oracle and
// benchmarks iterate the types of the variant, so an op without cases does not link, and none is silently untested.
// Host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/cases/gemm_case.h"

namespace coda::cases {

/// A GEMM op or a form of it. Its name is the op's, followed by words for what differs: "rstd", "in_out" (w's layout),
/// "f32" (the result), "f8" (the operands). Result files have the name without "f8", which is their precision.
struct Program {
    const char* name;
    GemmCase (*make)(const Shape& shape, const CaseOptions& options);
    std::int64_t columns = 8;  // N is a multiple of this: rows of 16 bytes, pairs, whole heads of either size
    bool gradient = false;     // a wgrad: M is a width and K counts the tokens; for all others M counts the tokens
};

enum class Size { test, step };

/// An op that is not a GEMM. Its operands are buffers 0, 1, ... of `buffers`.
struct OpCase {
    std::string shape;
    Op op;
    std::vector<Buffer> buffers;
    std::vector<std::int32_t> tokens;  // contents of buffer 0, where given
    double bytes = 0;                  // read and written: as cost(), but a table row once per distinct token

    View add(const char* name, DType dtype, std::int64_t rows, std::int64_t columns, Fill fill, double scale = 1,
             Access access = Access::in, std::int64_t gap = 0);
    View scalar(double value) { return add("scalar", DType::f32, 1, 1, Fill::ones, value); }
    View zero() { return add("zero", DType::i32, 1, 1, Fill::positions, 1, Access::inout); }
    View result(const char* name, DType dtype, std::int64_t rows, std::int64_t columns) {
        return add(name, dtype, rows, columns, Fill::nothing, 0, Access::out);
    }
    /// Scratch of that many bytes, filled with poison.
    View scratch(std::int64_t bytes_needed);

    OpCase finish(const Op& made, const std::string& shape_text);
    /// For an op on token ids, which moves one row of its table per distinct token.
    OpCase finish(const Op& made, const std::string& shape_text, std::int64_t bytes_moved);
};

/// A case in two sizes: one as in a training step of llama1b at B4 T8192, and one small enough for the CPU.
struct NamedCase {
    OpCase (*make)(Size size);
    bool benchmark = true;  // whether coda_bench pointwise times it
};

struct OpCases {
    std::vector<Program> programs;  // of a GEMM op
    std::vector<Program> f8 = {};   // of a GEMM op with FP8 factors: M and K are multiples of 16
    std::vector<NamedCase> others;  // of any other op
};

template <class T>
OpCases cases_of();

/// fn.operator()<T>() for every op type of the instruction set, in its order.
template <class Fn, class... Ops>
void for_each_type(std::type_identity<std::variant<Ops...>>, const Fn& fn) {
    (fn.template operator()<Ops>(), ...);
}
template <class Fn>
void for_each_op_type(const Fn& fn) {
    for_each_type(std::type_identity<Op>{}, fn);
}

/// The programs of all ops, in the order of the instruction set; and the programs of FP8 factors.
std::vector<Program> all_programs();
std::vector<Program> f8_programs();

/// The program of that name, of either list. Throws Error for an unknown name, and lists the known ones.
Program program_named(const std::string& name);

/// Throws Error for an unknown program.
GemmCase make_case(const Shape& shape, const CaseOptions& options = {});

/// The shapes of a benchmark: "llama1b" (M 32768), "llama8b" (M 16384) or "square". Throws Error for another name.
std::vector<Shape> preset(const std::string& name);

}  // namespace coda::cases
