// The forward GEMM programs of the CPU executor against their formulas in plain fp64 loops, for the three storage
// types, at odd shapes, with rows further apart than their length, and outputs poisoned by NaN.
#include "tests/kernels/gemm_programs.h"

namespace {

using namespace coda;
using namespace coda::test;

/// Calls fn(op, inputs, factor) for a program without and with the rstd factor, a and w set.
template <class Plain, class WithRstd, class Fn>
void plain_and_rstd(DType storage, DType compute, const ProgramShape& shape, const Fn& fn) {
    Inputs in(storage, shape, WeightLayout::out_in);
    Plain plain;
    plain.a = in.a;
    plain.w = in.w;
    fn(plain, in, [](std::int64_t) { return 1.0; });

    const View rstd = in.rstd(compute, shape.m);
    WithRstd op;
    op.a = in.a;
    op.w = in.w;
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
                in.run(Linear{.a = in.a, .w = in.w, .out = {out, Beta::overwrite}, .layout = layout});
                check_close("out", in.buffers, out, compute, product.error, product);

                const Values before = in.buffers.values(out);
                in.run(Linear{.a = in.a, .w = in.w, .out = {out, Beta::accumulate}, .layout = layout});
                check_close("out +=", in.buffers, out, compute, product.error, [&](std::int64_t i, std::int64_t j) {
                    return before[static_cast<std::size_t>(i * shape.n + j)] + product(i, j);
                });
            }
        }
    });
}

TEST_CASE("LinearRstd scales rows") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        Inputs in(storage, shape, WeightLayout::out_in);
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        const View rstd = in.rstd(compute, shape.m), out = in.out(storage, shape.m, shape.n);
        in.run(LinearRstd{.a = in.a, .w = in.w, .rstd = rstd, .out = out});
        check_close("out", in.buffers, out, compute, 2 * product.error,
                    [&](std::int64_t i, std::int64_t j) { return product(i, j) * in(rstd, 0, i); });
    });
}

TEST_CASE("LinearRope and LinearRstdRope turn pairs of the rotated heads by their position's angle") {
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
        plain_and_rstd<LinearRope, LinearRstdRope>(
            storage, compute, shape,
            [&](auto op, Inputs& in, const auto& factor) { check(op, in, storage, compute, shape, factor); });
    });
}

TEST_CASE("LinearSwiglu and LinearRstdSwiglu keep z and gate pairs of it") {
    const auto check = [](auto op, Inputs& in, DType storage, DType compute, const ProgramShape& shape,
                          const auto& factor) {
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        op.z = in.out(storage, shape.m, shape.n);
        op.y = in.out(storage, shape.m, shape.n / 2);
        in.run(op);
        const auto z = [&](std::int64_t i, std::int64_t j) { return product(i, j) * factor(i); };
        check_close("z", in.buffers, op.z, compute, 2 * product.error, z);
        // |dy/dg| <= 1.1 |u|, |dy/du| <= |g|, rstd <= 2; y is from z before rounding, and exp carries g's error.
        const double scale = 2 * largest(product.acc);
        const double absolute = 2.1 * scale * (2 * product.error + 2 * epsilon(compute) * scale);
        check_close("y", in.buffers, op.y, compute, absolute, [&](std::int64_t i, std::int64_t j) {
            return z(i, 2 * j) * sigmoid(z(i, 2 * j)) * z(i, 2 * j + 1);
        });
        if constexpr (requires { op.rstd; }) {  // either output may be absent and leaves the other's bits as they are
            auto only_y = op, only_z = op;
            only_y.z = only_z.y = View{};
            only_y.y = in.out(storage, shape.m, shape.n / 2);
            only_z.z = in.out(storage, shape.m, shape.n);
            in.run(only_y);
            in.run(only_z);
            CHECK((in.buffers.bits(only_y.y) == in.buffers.bits(op.y)));
            CHECK((in.buffers.bits(only_z.z) == in.buffers.bits(op.z)));
        }
    };
    for_each_program_case([&](DType storage, DType compute, const ProgramShape& shape) {
        plain_and_rstd<LinearSwiglu, LinearRstdSwiglu>(
            storage, compute, shape,
            [&](auto op, Inputs& in, const auto& factor) { check(op, in, storage, compute, shape, factor); });
    });
}

TEST_CASE("LinearCrossEntropy and LinearRstdCrossEntropy: logits, partial log-sum-exp, target logit") {
    const auto check = [](auto op, Inputs& in, DType storage, DType compute, const ProgramShape& shape,
                          std::int64_t vocab, const auto& factor) {
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        std::vector<int> targets;
        for (std::int64_t i = 0; i < shape.m; ++i) targets.push_back(i % 3 == 1 ? -1 : static_cast<int>(7 * i % vocab));
        targets.back() = static_cast<int>(vocab - 1);
        op.targets = in.buffers.indices(targets);
        op.logits = in.out(storage, shape.m, shape.n);
        op.lse = in.out(compute, tiles(shape.n, shape.tile), 2 * shape.m);
        op.target_logit = in.buffers.vector(compute, shape.m);
        op.vocab = vocab;
        op.tile = shape.tile;
        in.run(op);

        const auto logit = [&](std::int64_t i, std::int64_t j) { return product(i, j) * factor(i); };
        check_close("logits", in.buffers, op.logits, compute, 2 * product.error,
                    [&](std::int64_t i, std::int64_t j) { return j < vocab ? logit(i, j) : 0.0; });

        // The sum is of logits as they are stored. An error of logit - max is a relative one of its exp.
        const double error = 2 * product.error + 4 * epsilon(compute) * largest(product.acc);
        check_all("lse", in.buffers, op.lse, [&](std::int64_t t, std::int64_t column) {
            const Range range = tile_range(t, shape.tile, vocab);
            double max = -1e30, sum = 0;
            for (std::int64_t j = range.begin; j < range.end; ++j) max = std::max(max, logit(column / 2, j));
            for (std::int64_t j = range.begin; j < range.end; ++j) sum += std::exp(in(op.logits, column / 2, j) - max);
            // float(-1e30) is 1e22 off.
            if (column % 2 == 0) return Expectation{max, error + epsilon(compute) * std::fabs(max)};
            return Expectation{sum, (2 * error + kSummation * epsilon(compute)) * sum};
        });
        for (std::int64_t i = 0; i < shape.m; ++i) {
            const int target = targets[static_cast<std::size_t>(i)];
            const double got = in(op.target_logit, 0, i);
            CHECK((target < 0 ? std::isnan(got) : std::fabs(got - logit(i, target)) <= error));
        }

        auto statistics_only = op;  // evaluation: no logits stored, the same bits in the rest
        statistics_only.logits = View{};
        statistics_only.lse = in.out(compute, tiles(shape.n, shape.tile), 2 * shape.m);
        statistics_only.target_logit = in.buffers.vector(compute, shape.m);
        in.run(statistics_only);
        CHECK((in.buffers.bits(statistics_only.lse) == in.buffers.bits(op.lse)));
        CHECK((in.buffers.bits(statistics_only.target_logit) == in.buffers.bits(op.target_logit)));
    };
    for_each_program_case([&](DType storage, DType compute, const ProgramShape& shape) {
        // The second vocabulary leaves tiles without a valid column where there are several.
        for (const std::int64_t vocab : {shape.n, std::max<std::int64_t>(1, shape.n / 2 - 11)}) {
            plain_and_rstd<LinearCrossEntropy, LinearRstdCrossEntropy>(
                storage, compute, shape, [&](auto op, Inputs& in, const auto& factor) {
                    check(op, in, storage, compute, shape, vocab, factor);
                });
        }
    });
}

TEST_CASE("LinearResidualRms: x, h and the squares of x before rounding") {
    for_each_program_case([](DType storage, DType compute, const ProgramShape& shape) {
        Inputs in(storage, shape, WeightLayout::out_in);
        const Product product(in.buffers, in.a, in.w, WeightLayout::out_in);
        const View residual = in.in(storage, shape.m, shape.n), gamma = in.buffers.random(compute, 1, shape.n);
        const LinearResidualRms op{.a = in.a,
                                   .w = in.w,
                                   .residual = residual,
                                   .gamma = gamma,
                                   .x = in.out(storage, shape.m, shape.n),
                                   .h = in.out(storage, shape.m, shape.n),
                                   .square = in.out(compute, tiles(shape.n, shape.tile), shape.m),
                                   .tile = shape.tile};
        in.run(op);
        const auto x = [&](std::int64_t i, std::int64_t j) { return product(i, j) + in(residual, i, j); };
        const double error = product.error + epsilon(compute);
        check_close("x", in.buffers, op.x, compute, error, x);
        check_close("h", in.buffers, op.h, compute, error,
                    [&](std::int64_t i, std::int64_t j) { return x(i, j) * in(gamma, 0, j); });
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
        return message(Linear{.a = a, .w = in.w, .out = {result, Beta::overwrite}});
    };
    CHECK(linear(in.a, out).empty());
    CHECK(linear(in.a, in.out(DType::f32, 4, 7)) == "Linear: operand out is (4, 7), expected (4, 8)");
    CHECK(linear(in.a, in.out(DType::bf16, 4, 8)) == "Linear: operand out is bf16, expected f32");
    CHECK(linear(in.a, View{}) == "Linear: operand out is missing");
    CHECK(linear(in.in(DType::f32, 4, 5), out) == "Linear: operand w is (8, 3), expected (8, 5)");
    CHECK(message(LinearCrossEntropy{.a = in.a,
                                     .w = in.w,
                                     .targets = in.buffers.indices({0, -1, 6, 2}),
                                     .logits = out,
                                     .lse = in.out(DType::f32, 1, 8),
                                     .target_logit = in.buffers.vector(DType::f32, 4),
                                     .vocab = 6,
                                     .tile = 8}) ==
          "LinearCrossEntropy: targets[2] is 6, must be negative (ignored) or below the vocabulary 6");
}
