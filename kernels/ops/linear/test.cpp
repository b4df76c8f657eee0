// Linear against its formula in plain fp64 loops.
#include "tests/kernels/gemm_programs.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("Linear stores or adds its GEMM: both weight layouts, storage and gradient outputs") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
            for (const DType out_type : {storage, compute}) {
                Inputs in(storage, shape, layout);
                const Product product(in.buffers, in.a, in.w, layout);
                const View out = in.out(out_type, shape.m, shape.n);
                in.run(Linear{.a = in.a, .w = in.w, .rstd = {}, .out = {out, Beta::overwrite}, .layout = layout});
                check_close("out", in.buffers, out, compute, product.error, product);

                const Values before = in.buffers.values(out);
                in.run(Linear{.a = in.a, .w = in.w, .rstd = {}, .out = {out, Beta::accumulate}, .layout = layout});
                check_close("out +=", in.buffers, out, compute, product.error, [&](std::int64_t i, std::int64_t j) {
                    return before[static_cast<std::size_t>(i * shape.n + j)] + product(i, j);
                });
            }
        }
    });
}

TEST_CASE("Linear scales rows by rstd before it adds") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        Inputs in(storage, shape, WeightLayout::out_in);
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        const View rstd = in.rstd(compute, shape.m), out = in.out(storage, shape.m, shape.n);
        const auto scaled = [&](std::int64_t i, std::int64_t j) { return product(i, j) * in(rstd, 0, i); };
        in.run(Linear{.a = in.a, .w = in.w, .rstd = rstd, .out = {out, Beta::overwrite}});
        check_close("out", in.buffers, out, compute, 2 * product.error, scaled);

        const Values before = in.buffers.values(out);
        in.run(Linear{.a = in.a, .w = in.w, .rstd = rstd, .out = {out, Beta::accumulate}});
        check_close("out +=", in.buffers, out, compute, 2 * product.error, [&](std::int64_t i, std::int64_t j) {
            return before[static_cast<std::size_t>(i * shape.n + j)] + scaled(i, j);
        });
    });
}
