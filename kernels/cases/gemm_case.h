// Makes a GEMM op and its operands from the name of its program and a shape. Host.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cases/buffers.h"
#include "kernels/hopper/sm90/descriptor.h"
#include "kernels/ops.h"

namespace coda::cases {

struct Shape {
    std::string program;  // an op, or one of its forms: Program::name (op_cases.h)
    std::int64_t m, n, k;
};

/// An op whose operands are buffers 0, 1, ... of `buffers`. `bytes` is the size of its operands, each counted once per
/// access.
struct GemmCase {
    Shape shape;
    Op op;
    std::vector<Buffer> buffers;
    View a, b;
    hopper::Major major_a = hopper::Major::k, major_b = hopper::Major::k;
    bool f32_out = false;

    double flops() const {
        return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
    }
    double bytes() const;
};

struct CaseOptions {
    std::int64_t head_dim = 64;
    std::int64_t vocab = 0;   // 0: N
    bool integers = false;    // operands of the GEMM are small whole numbers, so that it is exact
    bool accumulate = false;  // add to the result where the op can
    bool optionals = false;   // with every optional operand: factors per row and per column, y, n
    bool evaluation = false;  // without optional results that only a backward pass reads
    double distance = 1;      // size of the target logits, whose distance from the logits (of size 1) it sets
    std::int64_t gap = 0;     // elements between rows of every matrix (a multiple of 8; of FP8, of 16)
    DType gradient_type = DType::f8e4m3;  // of FP8 codes of a gradient
};

/// Adds operands to a case under construction.
class GemmBuilder {
  public:
    GemmBuilder(const Shape& shape, const CaseOptions& options) : options_(options) { case_.shape = shape; }

    View add(const char* name, DType dtype, std::int64_t rows, std::int64_t columns, Fill fill, double scale,
             Access access);
    View storage(const char* name, std::int64_t rows, std::int64_t columns, double scale = 1) {
        return add(name, DType::bf16, rows, columns, Fill::normal, scale, Access::in);
    }
    View operand(const char* name, std::int64_t rows, std::int64_t columns, double scale) {
        if (options_.integers) return add(name, DType::bf16, rows, columns, Fill::integers, 2, Access::in);
        return storage(name, rows, columns, scale);
    }
    /// An FP8 operand of GEMMs of size 1, so that few elements are denormal.
    View f8_operand(const char* name, std::int64_t rows, std::int64_t columns, DType dtype = DType::f8e4m3) {
        if (options_.integers) return add(name, dtype, rows, columns, Fill::integers, 2, Access::in);
        return add(name, dtype, rows, columns, Fill::normal, 1, Access::in);
    }
    View f8_result(const char* name, std::int64_t rows, std::int64_t columns) {
        return result(name, rows, columns, DType::f8e4m3);
    }
    /// The same view, its columns in pairs of each 16.
    static View paired(View view) {
        view.order = ColumnOrder::paired;
        return view;
    }
    View scalar(const char* name, double value) { return statistic(name, 1, Fill::ones, value); }
    View result(const char* name, std::int64_t rows, std::int64_t columns, DType dtype = DType::bf16) {
        return add(name, dtype, rows, columns, Fill::nothing, 0, Access::out);
    }
    View statistic(const char* name, std::int64_t count, Fill fill, double scale) {
        return add(name, DType::f32, 1, count, fill, scale, Access::in);
    }
    Accumulate<Matrix> accumulated(const char* name, std::int64_t rows, std::int64_t columns, DType dtype) {
        if (!options_.accumulate) return {result(name, rows, columns, dtype), Beta::overwrite};
        const Fill fill = options_.integers ? Fill::integers : Fill::normal;
        return {add(name, dtype, rows, columns, fill, 2, Access::inout), Beta::accumulate};
    }
    /// Size of weights that gives accumulators of size 1 where `a` has size 1.
    double weight_scale() const { return 1 / std::sqrt(static_cast<double>(case_.shape.k)); }
    View rstd() { return statistic("rstd", case_.shape.m, Fill::positive, 1); }

    /// Adds the FP8 operands a (M, K) and w (N, K), and the factor that makes their accumulators of size 1.
    template <class T>
    void f8_product(T& op) {
        const auto [program, m, n, k] = case_.shape;
        op.a = case_.a = f8_operand("a", m, k, options_.gradient_type);
        op.w = case_.b = f8_operand("w", n, k);
        const View undo = scalar("undo", options_.integers ? 1 : weight_scale());
        if constexpr (requires { op.w.undo; })
            op.w.undo = undo;
        else
            op.scale = undo;
    }
    /// A result (rows, cols) that is rounded to FP8, its rows being tokens. `by_rows`: in both layouts.
    Rounded rounded(const RoundedNames& names, std::int64_t rows, std::int64_t cols, double scale, bool by_rows = true,
                    double amax = 0) {
        Rounded codes;
        codes.scale = scalar(names.scale, scale);
        if (by_rows) codes.rows = f8_result(names.rows, rows, cols);
        codes.columns = paired(f8_result(names.columns, cols, rows));
        codes.amax = add(names.amax, DType::f32, 1, 1, Fill::ones, amax, Access::inout);
        return codes;
    }
    /// Adds the op's operands a (M, K) and w.
    template <class T>
    void product(T& op, WeightLayout layout) {
        const auto [program, m, n, k] = case_.shape;
        const bool out_in = layout == WeightLayout::out_in;
        op.a = case_.a = operand("a", m, k, 1);
        op.w = case_.b = operand("w", out_in ? n : k, out_in ? k : n, weight_scale());
        case_.major_b = out_in ? hopper::Major::k : hopper::Major::mn;
    }
    GemmCase& target() { return case_; }
    GemmCase finish(const Op& op) {
        case_.op = op;
        return case_;
    }

  private:
    GemmCase case_;
    const CaseOptions& options_;
};

}  // namespace coda::cases
