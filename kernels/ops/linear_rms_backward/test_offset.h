// The head's dgrad in a model whose logits all have an offset, for its tests: the gradient of a row sums to 0, so what
// the rows of the head's matrix share cancels in the GEMM.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/core/integers.h"
#include "kernels/cpu/run.h"
#include "tests/kernels/fixture.h"

namespace coda::test {

struct OffsetShape {
    std::int64_t tokens, width, vocab;
    double spread;    // RMS of the logits' differences; a small one makes all predictions alike
    double offset;    // of all logits
    bool one_column;  // of x carries the offset; otherwise all columns do alike
};

/// Exponentials, scales and dots are those that the head's ops make on the CPU in bf16 storage, so rows with a target's
/// logit beyond 2^8 are ExactCrossEntropy's. `op` has not run.
struct OffsetHead {
    Buffers buffers;
    LinearRmsBackward op;

    explicit OffsetHead(const OffsetShape& shape) {
        const auto [tokens, width, vocab, spread, offset, one_column] = shape;
        std::mt19937_64 bits(7);
        std::normal_distribution<double> normal;
        const double root = std::sqrt(static_cast<double>(width));
        const View x = buffers.matrix(DType::bf16, tokens, width), w = buffers.matrix(DType::bf16, vocab, width);
        const View rstd = buffers.vector(DType::f32, tokens);
        double mean_rstd = 0;
        for (std::int64_t m = 0; m < tokens; ++m) {
            double squares = 0;
            for (std::int64_t j = 0; j < width; ++j) {
                const bool carries = !one_column || j == 0;
                buffers.set(x, m, j, one_column && carries ? 1 : (carries ? 1 : 0) + normal(bits));
                squares += buffers.get(x, m, j) * buffers.get(x, m, j);
            }
            buffers.set(rstd, 0, m, root / std::sqrt(squares));
            mean_rstd += buffers.get(rstd, 0, m) / static_cast<double>(tokens);
        }
        const double shared = offset / (mean_rstd * (one_column ? 1 : static_cast<double>(width)));
        for (std::int64_t v = 0; v < vocab; ++v)
            for (std::int64_t j = 0; j < width; ++j)
                buffers.set(w, v, j, spread / root * normal(bits) + (!one_column || j == 0 ? shared : 0));
        std::vector<int> chosen;
        for (std::int64_t m = 0; m < tokens; ++m)
            chosen.push_back(static_cast<int>(bits() % static_cast<std::uint64_t>(vocab)));
        make_gradient(x, w, rstd, buffers.indices(chosen));
        op.alpha = buffers.scalar(DType::f32, 1 / static_cast<double>(tokens));
        op.dx = {buffers.matrix(DType::bf16, tokens, width), Beta::overwrite};
        op.n = buffers.matrix(DType::bf16, tokens, width);
        op.tile = LinearRmsBackward::kTileRows;
        op.dgamma = buffers.matrix(DType::f32, ceil_div(tokens, op.tile), width);
    }

  private:
    void make_gradient(const View& x, const View& w, const View& rstd, const View& targets) {
        const std::int64_t tokens = x.rows, vocab = w.rows, tile = LinearCrossEntropy::kTileColumns;
        const View target_logit = buffers.vector(DType::f32, tokens), loss = buffers.vector(DType::f32, tokens);
        const View exponentials = buffers.matrix(DType::bf16, tokens, vocab);
        const View sums = buffers.matrix(DType::f32, ceil_div(vocab, tile), 2 * tokens);
        const View scale = buffers.vector(DType::f32, tokens), dot = buffers.vector(DType::f32, tokens);
        const View flags = buffers.vector(DType::i32, tokens);
        TargetLogit target;
        target.a = x, target.table = w, target.rstd = rstd, target.targets = targets;
        target.target_logit = target_logit;
        LinearCrossEntropy logits;
        logits.a = x, logits.w = w, logits.rstd = rstd, logits.target_logit = target_logit;
        logits.exponentials = exponentials, logits.sums = sums;
        logits.vocab = vocab, logits.tile = tile;
        FinishCrossEntropy finish;
        finish.sums = sums, finish.target_logit = target_logit, finish.targets = targets;
        finish.exponentials = exponentials, finish.scale = scale, finish.dot = dot, finish.loss = loss;
        finish.flags = flags;
        ExactCrossEntropy exact;
        exact.a = x, exact.table = w, exact.rstd = rstd, exact.targets = targets, exact.flags = flags;
        exact.exponentials = exponentials, exact.scale = scale, exact.dot = dot, exact.loss = loss;
        exact.scratch = buffers.matrix(DType::u8, 1, exact.scratch_bytes());
        for (const Op& each : {Op(target), Op(logits), Op(finish), Op(exact)}) cpu::run(each, buffers.memory());
        op.a = exponentials, op.w = w, op.x = x, op.rstd = rstd, op.dot = dot, op.scale = scale;
    }
};

}  // namespace coda::test
