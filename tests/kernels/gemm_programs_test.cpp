// The forward GEMM programs of the CPU executor against their formulas in plain fp64 loops, for the three storage
// types, at odd shapes, with rows further apart than their length, and outputs poisoned by NaN.
#include "tests/kernels/gemm_programs.h"

#include <numbers>

#include "kernels/math/cross_entropy.h"

namespace {

using namespace coda;
using namespace coda::test;

/// Calls fn(op, inputs, factor) for an op without and with the rstd factor, a and w set.
template <class Program, class Fn>
void plain_and_rstd(DType storage, DType compute, const ProgramShape& shape, const Fn& fn) {
    Inputs in(storage, shape, WeightLayout::out_in);
    Program op;
    op.a = in.a;
    op.w = in.w;
    fn(op, in, [](std::int64_t) { return 1.0; });

    const View rstd = in.rstd(compute, shape.m);
    op.rstd = rstd;
    fn(op, in, [&](std::int64_t row) { return in(rstd, 0, row); });
}

}  // namespace

TEST_CASE("Linear stores or adds the product, both weight layouts, storage and gradient outputs") {
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

TEST_CASE("LinearRope turns pairs of the rotated heads by their position's angle") {
    const auto check = [](auto op, Inputs& in, DType storage, DType compute, const ProgramShape& shape,
                          const auto& factor) {
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        constexpr int kPositions = 11;
        const View rope = in.in(compute, kPositions, kHead);
        std::vector<int> positions;
        for (std::int64_t i = 0; i < shape.m; ++i) positions.push_back(static_cast<int>((5 * i + 2) % kPositions));
        op.positions = in.buffers.indices(positions);
        op.rope = rope;
        op.out = in.out(storage, shape.m, shape.n);
        op.rotated = (2 * shape.n / kHead + 2) / 3 * kHead;
        op.head_dim = kHead;
        in.run(op);
        // |cos|, |sin| <= 1 and rstd <= 2, so two accumulators' errors grow at most fourfold; terms may cancel.
        const double absolute = 4 * product.error + 4 * epsilon(compute) * largest(product.acc);
        check_close("out", in.buffers, op.out, compute, absolute, [&](std::int64_t i, std::int64_t j) {
            const double value = product(i, j) * factor(i);
            if (j >= op.rotated) return value;
            const std::int64_t pair = j % kHead / 2;
            const int position = positions[static_cast<std::size_t>(i)];
            const double cosine = in(rope, position, 2 * pair), sine = in(rope, position, 2 * pair + 1);
            const double partner = product(i, j % 2 == 0 ? j + 1 : j - 1) * factor(i);
            return j % 2 == 0 ? value * cosine - partner * sine : value * cosine + partner * sine;
        });
    };
    for_each_program_case([&](DType storage, DType compute, const ProgramShape& shape) {
        plain_and_rstd<LinearRope>(storage, compute, shape, [&](auto op, Inputs& in, const auto& factor) {
            check(op, in, storage, compute, shape, factor);
        });
    });
}

TEST_CASE("LinearSwiglu keeps z and gates pairs of it") {
    const auto check = [](auto op, Inputs& in, DType storage, DType compute, const ProgramShape& shape,
                          const auto& factor) {
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        op.z = in.out(storage, shape.m, shape.n);
        op.y = in.out(storage, shape.m, shape.n / 2);
        in.run(op);
        const auto z = [&](std::int64_t i, std::int64_t j) { return product(i, j) * factor(i); };
        check_close("z", in.buffers, op.z, compute, 2 * product.error, z);
        // |dy/dg| <= 1.1 |u|, |dy/du| <= |g|, rstd <= 2; exp carries g's error. Of z as it is stored.
        const double scale = 2 * largest(product.acc);
        const double absolute = 2.1 * scale * 2 * epsilon(compute) * scale;
        check_close("y", in.buffers, op.y, compute, absolute, [&](std::int64_t i, std::int64_t j) {
            const double gate = in(op.z, i, 2 * j), up = in(op.z, i, 2 * j + 1);
            return gate * sigmoid(gate) * up;
        });
        auto only_y = op, only_z = op;  // either output may be absent and leaves the other's bits as they are
        only_y.z = only_z.y = View{};
        only_y.y = in.out(storage, shape.m, shape.n / 2);
        only_z.z = in.out(storage, shape.m, shape.n);
        in.run(only_y);
        in.run(only_z);
        CHECK((in.buffers.bits(only_y.y) == in.buffers.bits(op.y)));
        CHECK((in.buffers.bits(only_z.z) == in.buffers.bits(op.z)));
    };
    for_each_program_case([&](DType storage, DType compute, const ProgramShape& shape) {
        plain_and_rstd<LinearSwiglu>(storage, compute, shape, [&](auto op, Inputs& in, const auto& factor) {
            check(op, in, storage, compute, shape, factor);
        });
    });
}

TEST_CASE("LinearCrossEntropy: exponentials and their partial sums") {
    const auto check = [](auto op, Inputs& in, DType storage, DType compute, const ProgramShape& shape,
                          std::int64_t vocab, const auto& factor) {
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        op.target_logit = in.buffers.random(compute, 1, shape.m, -4, 4);
        in.buffers.set(op.target_logit, 0, shape.m / 2, -150);  // a row of which every logit is beyond the limit
        op.exponentials = in.out(storage, shape.m, shape.n);
        op.sums = in.out(compute, tiles(shape.n, shape.tile), 2 * shape.m);
        op.vocab = vocab;
        op.tile = shape.tile;
        in.run(op);

        const double limit = cross_entropy::kLimit * std::numbers::ln2;
        const auto distance = [&](std::int64_t i, std::int64_t j) {
            return product(i, j) * factor(i) - in(op.target_logit, 0, i);
        };
        // rstd <= 2. The roundings of logit, distance and limit; an error of d is a relative one of its exponential.
        const auto error = [&](std::int64_t i, std::int64_t j) {
            return 2 * product.error + epsilon(compute) * (std::fabs(product(i, j) * factor(i)) +
                                                           std::fabs(in(op.target_logit, 0, i)) + limit);
        };
        const double rounding = storage == compute ? 0 : epsilon(storage) / 2;
        check_all("exponentials", in.buffers, op.exponentials, [&](std::int64_t i, std::int64_t j) {
            if (j >= vocab) return Expectation{0, 0};
            const double e = std::ldexp(std::exp(std::min(distance(i, j), limit)), -cross_entropy::kShift);
            return Expectation{e, e * (error(i, j) + rounding + kArithmetic * epsilon(compute))};
        });
        // Of exponentials as they are stored, and of distances before the limit.
        check_all("sums", in.buffers, op.sums, [&](std::int64_t t, std::int64_t column) {
            const Range range = tile_range(t, shape.tile, vocab);
            const std::int64_t i = column / 2;
            double sum = 0, magnitude = 0, strayed = 0;
            for (std::int64_t j = range.begin; j < range.end; ++j) {
                const double e = in(op.exponentials, i, j), term = column % 2 == 0 ? e : e * distance(i, j);
                sum += term;
                magnitude += std::fabs(term);
                if (column % 2 == 1) strayed += e * error(i, j);
            }
            return Expectation{sum, kSummation * epsilon(compute) * magnitude + strayed};
        });

        auto sums_only = op;  // evaluation: no exponentials stored, the same bits in the sums
        sums_only.exponentials = View{};
        sums_only.sums = in.out(compute, tiles(shape.n, shape.tile), 2 * shape.m);
        in.run(sums_only);
        CHECK((in.buffers.bits(sums_only.sums) == in.buffers.bits(op.sums)));
    };
    for_each_program_case([&](DType storage, DType compute, const ProgramShape& shape) {
        // The second vocabulary leaves tiles without a valid column where there are several.
        for (const std::int64_t vocab : {shape.n, std::max<std::int64_t>(1, shape.n / 2 - 11)}) {
            plain_and_rstd<LinearCrossEntropy>(storage, compute, shape, [&](auto op, Inputs& in, const auto& factor) {
                check(op, in, storage, compute, shape, vocab, factor);
            });
        }
    });
}

TEST_CASE("LinearResidualRms: x and the squares of x before rounding") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        Inputs in(storage, shape, WeightLayout::out_in);
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        const View residual = in.in(storage, shape.m, shape.n);
        const LinearResidualRms op{.a = in.a,
                                   .w = in.w,
                                   .residual = residual,
                                   .x = in.out(storage, shape.m, shape.n),
                                   .square = in.out(compute, tiles(shape.n, shape.tile), shape.m),
                                   .tile = shape.tile};
        in.run(op);
        const auto x = [&](std::int64_t i, std::int64_t j) { return product(i, j) + in(residual, i, j); };
        const double error = product.error + epsilon(compute);
        check_close("x", in.buffers, op.x, compute, error, x);
        check_partials("square", in.buffers, op.square, shape.tile, shape.n, 2 * (largest(product.acc) + 1) * error,
                       [&](std::int64_t i, std::int64_t j) { return x(i, j) * x(i, j); });
    });
}

TEST_CASE("GEMM programs name the operand that does not fit") {
    Inputs in(DType::f32, {.m = 4, .n = 8, .k = 3, .tile = 8}, WeightLayout::out_in);
    const auto message = [&](const auto& op) -> std::string {
        try {
            in.run(op);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const View out = in.out(DType::f32, 4, 8);
    const auto linear = [&](const View& a, const View& result) {
        return message(Linear{.a = a, .w = in.w, .rstd = {}, .out = {result, Beta::overwrite}});
    };
    CHECK(linear(in.a, out).empty());
    CHECK(linear(in.a, in.out(DType::f32, 4, 7)) == "Linear: operand out is (4, 7), expected (4, 8)");
    CHECK(linear(in.a, in.out(DType::bf16, 4, 8)) == "Linear: operand out is bf16, expected f32");
    CHECK(linear(in.a, View{}) == "Linear: operand out is missing");
    CHECK(linear(in.in(DType::f32, 4, 5), out) == "Linear: operand w is (8, 3), expected (8, 5)");
    CHECK(message(LinearCrossEntropy{.a = in.a,
                                     .w = in.w,
                                     .rstd = {},
                                     .target_logit = in.buffers.random(DType::f32, 1, 4),
                                     .exponentials = out,
                                     .sums = in.out(DType::f32, 1, 8),
                                     .vocab = 9,
                                     .tile = 8}) == "LinearCrossEntropy: vocab 9 must be 1 to 8, the rows of w");
}
