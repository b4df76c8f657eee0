// cross_entropy_backward - logits to their gradient, in place
//
//   g   = exp(l - lse) - [column == target], 0 on ignored rows and on columns >= vocab    (M, V) bf16, over the logits
//   dot = Σ_v l g                                                                         (M) fp32, g as stored
//
// The dgrad that follows multiplies the stored g; with dot of the same g the norm's gradient stays orthogonal to what
// was normalised. Targets of one token round alike, so what dot of the unrounded g leaves does not average out. One
// block a row, 16 bytes an access: the kernel moves what a copy of the logits moves. An ignored row is not read.
#include <cuda_runtime.h>

#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/pointwise.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 512;

struct BackwardArguments {
    uint4* logits;  // (M, vectors)
    std::int64_t ld;
    const float* lse;
    const std::int32_t* targets;
    float* dot;
    int vectors, vocab;
};

__global__ __launch_bounds__(kThreads) void cross_entropy_backward(BackwardArguments arguments) {
    constexpr float kLog2e = 1.4426950408889634f;
    const std::int64_t row = blockIdx.x;
    uint4* logits = arguments.logits + row * arguments.ld;
    const int target = arguments.targets[row];
    if (target < 0) {
        for (int i = static_cast<int>(threadIdx.x); i < arguments.vectors; i += kThreads) logits[i] = {0, 0, 0, 0};
        if (threadIdx.x == 0) arguments.dot[row] = 0;
        return;
    }
    const float lse = arguments.lse[row];
    float sum = 0;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < arguments.vectors; i += kThreads) {
        const Eight given = unpack(__ldcs(logits + i));
        Eight eight;
        const int column = 8 * i;
        const bool whole = column + 8 <= arguments.vocab;
        const auto ahead = static_cast<unsigned>(target - column);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float logit = given.value[j];
            float gradient = exp2f((logit - lse) * kLog2e);
            // p - 1 by expm1: where the model is sure, p is close to 1 and the difference would be rounding alone.
            if (ahead == static_cast<unsigned>(j)) gradient = expm1f(logit - lse);
            eight.value[j] = whole || column + j < arguments.vocab ? gradient : 0.0f;
        }
        const uint4 stored = pack(eight);
        __stcs(logits + i, stored);
        const Eight rounded = unpack(stored);
#pragma unroll
        for (int j = 0; j < 8; ++j) sum += given.value[j] * rounded.value[j];
    }
    sum = block_sum<kThreads>(sum);
    if (threadIdx.x == 0) arguments.dot[row] = sum;
}

}  // namespace

Launch prepare_op(const CrossEntropyBackward& op, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.logits.rows, columns = op.logits.cols;
    require(op.vocab >= 1 && op.vocab <= columns, op.name, ": vocab ", op.vocab, " is outside [1, ", columns,
            "], the columns of logits");
    BackwardArguments arguments{};
    arguments.logits = reinterpret_cast<uint4*>(operands.get_vectors("logits", op.logits, rows, columns));
    arguments.ld = op.logits.ld / 8;
    arguments.lse = operands.get<float>("lse", op.lse, 1, rows);
    arguments.targets = operands.get<std::int32_t>("targets", op.targets, 1, rows);
    arguments.dot = operands.get<float>("dot", op.dot, 1, rows);
    arguments.vectors = static_cast<int>(columns / 8);
    arguments.vocab = static_cast<int>(op.vocab);
    const auto blocks = static_cast<unsigned>(rows);
    return [=](Stream stream) {
        cross_entropy_backward<<<blocks, kThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

}  // namespace coda::hopper
