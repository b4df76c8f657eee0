#include "tools/bench/gemm_cases.h"

#include <cmath>

#include "kernels/core/error.h"
#include "kernels/core/integers.h"

namespace coda::bench {

namespace {

class Builder {
  public:
    Builder(GemmCase& target, const CaseOptions& options) : case_(target), options_(options) {}

    View add(const char* name, DType dtype, std::int64_t rows, std::int64_t columns, Fill fill, double scale,
             Access access) {
        const std::int64_t gap = rows > 1 && dtype == DType::bf16 ? options_.gap : 0;
        const View view{static_cast<BufferId>(case_.buffers.size()), dtype, 0, rows, columns, columns + gap, 0};
        case_.buffers.push_back({name, view, fill, scale, access});
        return view;
    }
    View storage(const char* name, std::int64_t rows, std::int64_t columns, double scale = 1) {
        return add(name, DType::bf16, rows, columns, Fill::normal, scale, Access::in);
    }
    View operand(const char* name, std::int64_t rows, std::int64_t columns, double scale) {
        if (options_.integers) return add(name, DType::bf16, rows, columns, Fill::integers, 2, Access::in);
        return storage(name, rows, columns, scale);
    }
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

  private:
    GemmCase& case_;
    const CaseOptions& options_;
};

}  // namespace

double GemmCase::bytes() const {
    double total = 0;
    for (const Buffer& buffer : buffers)
        total += static_cast<double>(buffer.view.bytes()) * (buffer.access == Access::inout ? 2 : 1);
    return total;
}

GemmCase make_case(const Shape& shape, const CaseOptions& options) {
    GemmCase made;
    made.shape = shape;
    Builder build(made, options);
    const auto [program, m, n, k] = shape;
    const double weight_scale = 1 / std::sqrt(static_cast<double>(k));
    const auto activation = [&] { return made.a = build.operand("a", m, k, 1); };
    const auto weight = [&](WeightLayout layout) {
        const bool out_in = layout == WeightLayout::out_in;
        made.major_b = out_in ? hopper::Major::k : hopper::Major::mn;
        return made.b = build.operand("w", out_in ? n : k, out_in ? k : n, weight_scale);
    };
    const auto forward = WeightLayout::out_in;
    const auto backward = WeightLayout::in_out;
    const auto rstd = [&] { return build.statistic("rstd", m, Fill::positive, 1); };

    const bool with_rstd = program.starts_with("LinearRstd");
    const auto optional_rstd = [&] { return with_rstd ? rstd() : View{}; };

    if (program == "Linear" || program == "LinearDgrad" || program == "LinearF32" || program == "LinearRstd") {
        Linear op;
        op.layout = program == "LinearDgrad" ? backward : forward;
        made.f32_out = program == "LinearF32";
        op.a = activation();
        op.w = weight(op.layout);
        op.rstd = optional_rstd();
        op.out = with_rstd ? Accumulate<Matrix>{build.result("out", m, n), Beta::overwrite}
                           : build.accumulated("out", m, n, made.f32_out ? DType::f32 : DType::bf16);
        made.op = op;
    } else if (program == "WeightGradient") {
        WeightGradient op;
        made.f32_out = true;
        made.major_a = made.major_b = hopper::Major::mn;
        op.dy = made.a = build.operand("dy", k, m, 1);
        op.x = made.b = build.operand("x", k, n, weight_scale);
        if (options.optionals) {
            op.gamma = build.statistic("gamma", n, options.integers ? Fill::integers : Fill::positive,
                                       options.integers ? 3 : 1);
            op.alpha = build.statistic("alpha", 1, Fill::ones, options.integers ? 2 : 0.37);
        }
        op.grad = build.accumulated("grad", m, n, DType::f32);
        if (const std::int64_t bytes = op.scratch_bytes(); bytes > 0)
            op.scratch = build.add("scratch", DType::u8, 1, bytes, Fill::nothing, 0, Access::inout);
        made.op = op;
    } else if (program == "LinearRope" || program == "LinearRstdRope") {
        LinearRope op;
        op.a = activation();
        op.w = weight(forward);
        op.positions = build.add("positions", DType::i32, 1, m, Fill::positions, 512, Access::in);
        op.rope = build.add("rope", DType::f32, 512, options.head_dim, Fill::angles, 1, Access::in);
        op.out = build.result("out", m, n);
        op.head_dim = options.head_dim;
        op.rotated = n / options.head_dim * 5 / 6 * options.head_dim;
        op.rstd = optional_rstd();
        made.op = op;
    } else if (program == "LinearSwiglu" || program == "LinearRstdSwiglu") {
        LinearSwiglu op;
        op.a = activation();
        op.w = weight(forward);
        op.z = build.result("z", m, n);
        op.y = build.result("y", m, n / 2);
        op.rstd = optional_rstd();
        made.op = op;
    } else if (program == "LinearCrossEntropy" || program == "LinearRstdCrossEntropy") {
        LinearCrossEntropy op;
        op.a = activation();
        op.w = weight(forward);
        op.vocab = options.vocab == 0 ? n : options.vocab;
        op.tile = LinearCrossEntropy::kTileColumns;
        op.target_logit = build.statistic("target_logit", m, Fill::normal, options.distance);
        op.rstd = optional_rstd();
        if (!options.evaluation) op.exponentials = build.result("exponentials", m, n);
        op.sums = build.result("sums", ceil_div(n, op.tile), 2 * m, DType::f32);
        made.op = op;
    } else if (program == "LinearResidualRms") {
        LinearResidualRms op;
        op.a = activation();
        op.w = weight(forward);
        op.tile = LinearResidualRms::kTileColumns;
        op.residual = build.storage("residual", m, n);
        op.x = build.result("x", m, n);
        op.square = build.result("square", ceil_div(n, op.tile), m, DType::f32);
        made.op = op;
    } else if (program == "LinearRmsBackward") {
        LinearRmsBackward op;
        op.a = activation();
        op.w = weight(backward);
        op.tile = LinearRmsBackward::kTileRows;
        op.x = build.storage("x", m, n);
        op.rstd = rstd();
        op.dot = build.statistic("dot", m, Fill::normal, std::sqrt(static_cast<double>(n)));
        if (options.optionals) {
            op.alpha = build.statistic("alpha", 1, Fill::ones, 0.37);
            op.scale = build.statistic("scale", m, Fill::positive, 1);
            op.n = build.result("n", m, n);
        }
        op.dx = build.accumulated("dx", m, n, DType::bf16);
        op.dgamma = build.result("dgamma", ceil_div(m, op.tile), n, DType::f32);
        made.op = op;
    } else if (program == "LinearSwigluBackward") {
        LinearSwigluBackward op;
        op.a = activation();
        op.w = weight(backward);
        op.tile = LinearSwigluBackward::kTileColumns;
        op.z = build.storage("z", m, 2 * n);
        op.rstd = rstd();
        op.dz = build.result("dz", m, 2 * n);
        if (options.optionals) op.y = build.result("y", m, n);
        op.dot = build.result("dot", ceil_div(n, op.tile), m, DType::f32);
        made.op = op;
    } else if (program == "LinearHeadDot") {
        LinearHeadDot op;
        op.a = activation();
        op.w = weight(backward);
        op.head_dim = options.head_dim;
        op.o = build.storage("o", m, n);
        op.out = build.result("out", m, n);
        op.delta = build.result("delta", n / options.head_dim, m, DType::f32);
        made.op = op;
    } else {
        throw Error(text("unknown GEMM program '", program, "'"));
    }
    return made;
}

std::vector<Shape> preset(const std::string& name) {
    if (name == "square") {
        std::vector<Shape> shapes;
        for (const std::int64_t size : {2048, 4096, 8192})
            for (const char* program : {"Linear", "LinearDgrad", "WeightGradient"})
                shapes.push_back({program, size, size, size});
        return shapes;
    }
    require(name == "llama1b" || name == "llama8b", "unknown preset '", name, "': llama1b, llama8b or square");
    const bool small = name == "llama1b";
    const std::int64_t m = small ? 32768 : 16384;
    const std::int64_t d = small ? 2048 : 4096;   // model width
    const std::int64_t f = small ? 8192 : 14336;  // feed-forward width
    const std::int64_t q = small ? 3072 : 6144;   // q, k and v heads
    const std::int64_t vocab = 128256;
    return {
        {"LinearRstdRope", m, q, d},
        {"LinearResidualRms", m, d, d},
        {"LinearRstdSwiglu", m, 2 * f, d},
        {"LinearResidualRms", m, d, f},
        {"LinearRstdCrossEntropy", m, vocab, d},
        {"LinearRmsBackward", m, d, vocab},
        {"LinearSwigluBackward", m, f, d},
        {"LinearRmsBackward", m, d, 2 * f},
        {"LinearHeadDot", m, d, d},
        {"LinearRmsBackward", m, d, q},
        {"WeightGradient", q, d, m},
        {"WeightGradient", d, d, m},
        {"WeightGradient", 2 * f, d, m},
        {"WeightGradient", d, f, m},
        {"WeightGradient", vocab, d, m},
        {"Linear", m, q, d},
        {"Linear", m, d, d},
        {"Linear", m, 2 * f, d},
        {"Linear", m, d, f},
        {"LinearDgrad", m, d, 2 * f},
        {"LinearDgrad", m, f, d},
        {"LinearDgrad", m, d, q},
        {"LinearRstd", m, d, d},
    };
}

}  // namespace coda::bench
