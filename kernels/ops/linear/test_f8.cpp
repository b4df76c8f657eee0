// The FP8 form of Linear against its formula in plain fp64 loops, on the same 8-bit operands.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr DType kE4M3 = DType::f8e4m3, kE5M2 = DType::f8e5m2;

}  // namespace

TEST_CASE("Linear of FP8 operands: both formats, bf16 and fp32 results, with and without a factor") {
    for (const ProgramShape& shape : kProgramShapes)
        for (const DType format : {kE4M3, kE5M2})
            for (const DType out_type : {DType::bf16, DType::f32})
                for (const bool with_scale : {false, true}) {
                    INFO(name_of(format) << " to " << name_of(out_type) << ", M " << shape.m << ", N " << shape.n);
                    Inputs in(DType::f32, shape, WeightLayout::out_in);
                    const View a = in.in(format, shape.m, shape.k), w = in.in(kE4M3, shape.n, shape.k);
                    const Product product(in.buffers, a, w, WeightLayout::out_in);
                    const double scale = with_scale ? 0.375 : 1;
                    const View out = in.out(out_type, shape.m, shape.n);
                    Linear op{.a = a,
                              .w = w,
                              .rstd = {},
                              .scale = with_scale ? in.buffers.scalar(DType::f32, scale) : View{},
                              .out = {out, Beta::overwrite},
                              .promotion = 512};
                    in.run(op);
                    check_close("out", in.buffers, out, DType::f32, product.error,
                                [&](std::int64_t i, std::int64_t j) { return scale * product(i, j); });

                    const Values before = in.buffers.values(out);
                    op.out.beta = Beta::accumulate;
                    in.run(op);
                    check_close("out +=", in.buffers, out, DType::f32, product.error,
                                [&](std::int64_t i, std::int64_t j) {
                                    return before[static_cast<std::size_t>(i * shape.n + j)] + scale * product(i, j);
                                });
                }
}

TEST_CASE("Linear refuses what FP8 does not go with") {
    Buffers buffers;
    const View a = buffers.random(kE4M3, 16, 32), w = buffers.random(kE4M3, 24, 32);
    const View out = buffers.matrix(DType::bf16, 16, 24), one = buffers.scalar(DType::f32, 1);
    const auto refusal = [&](const Linear& op) -> std::string {
        try {
            cpu::execute(op, buffers.memory());
        } catch (const Error& error) {
            return error.what();
        }
        return "accepted";
    };
    const Linear right{.a = a, .w = w, .rstd = {}, .scale = one, .out = {out, Beta::overwrite}};
    CHECK(refusal(right) == "accepted");
    Linear op = right;
    op.layout = WeightLayout::in_out;
    CHECK_THAT(refusal(op), Catch::Contains("FP8 operands are (M, K) and (N, K)"));
    op = right;
    op.rstd = buffers.random(DType::f32, 1, 16);
    CHECK_THAT(refusal(op), Catch::Contains("no rstd"));
    op = right;
    op.w = buffers.random(DType::bf16, 24, 32);
    CHECK_THAT(refusal(op), Catch::Contains("operand w is bf16, expected f8e4m3 or f8e5m2"));
    op = right;
    op.w.order = ColumnOrder::paired;
    CHECK_THAT(refusal(op), Catch::Contains("operand w has its columns in pairs of each 16, expected natural order"));
    op = right;
    op.a = buffers.random(DType::bf16, 16, 32);
    op.w = buffers.random(DType::bf16, 24, 32);
    CHECK_THAT(refusal(op), Catch::Contains("scale and promotion go with FP8 operands, and a is bf16"));
}
