// Attention, checked by its formula in op.h: for each query head, bands of queries against all keys up to the band's
// last query, with all logits and probabilities in fp32.
#include <cmath>

#include "kernels/ops/attention/op.h"
#include "kernels/ops/attention/oracle_heads.cuh"
#include "kernels/oracle/f8_copies.cuh"

namespace coda::oracle {

namespace {

using hopper::Major;

/// Replaces a row of q k by its softmax over the visible keys, 0 elsewhere, and writes its log-sum-exp. One block per
/// row.
__global__ void softmax_kernel(float* scores, std::int64_t keys, Mask visible, float scale, float* lse) {
    __shared__ double threads[kThreads];
    const std::int64_t row = blockIdx.x;
    float* logits = scores + row * keys;
    const auto reduce = [&](double own, auto&& combine) {
        threads[threadIdx.x] = own;
        __syncthreads();
        double all = threads[0];
        for (int i = 1; i < kThreads; ++i) all = combine(all, threads[i]);
        __syncthreads();
        return all;
    };
    double largest = -INFINITY;
    for (std::int64_t key = threadIdx.x; key < keys; key += kThreads)
        if (visible(row, key)) largest = fmax(largest, static_cast<double>(logits[key] * scale));
    largest = reduce(largest, [](double a, double b) { return fmax(a, b); });
    double sum = 0;
    for (std::int64_t key = threadIdx.x; key < keys; key += kThreads)
        if (visible(row, key)) sum += exp(static_cast<double>(logits[key] * scale) - largest);
    sum = reduce(sum, [](double a, double b) { return a + b; });
    for (std::int64_t key = threadIdx.x; key < keys; key += kThreads)
        logits[key] =
            visible(row, key) ? static_cast<float>(exp(static_cast<double>(logits[key] * scale) - largest) / sum) : 0;
    if (threadIdx.x == 0) lse[row] = static_cast<float>(largest + log(sum));
}

}  // namespace

template <>
void check_op(const Attention& op, OpCheck& check) {
    const std::int64_t width = op.head_dim;
    const std::vector<Band> cut = query_bands(op, check.space(), {2, 2, 1, 0, 1});
    const std::int64_t queries = cut.front().rows;
    Pieces pieces(check.space());
    float* keys = pieces.floats(op.seq_len * width);
    float* values = pieces.floats(op.seq_len * width);
    float* query = pieces.floats(queries * width);
    float* output = pieces.floats(queries * width);
    float* lse = pieces.floats(queries);
    float* scores = pieces.floats(queries * op.seq_len);

    for (std::int64_t start = 0; start < op.qkv.rows; start += op.seq_len) {
        const Sequence<Attention> sequence{op, check, start};
        for (std::int64_t h = 0; h < op.heads; ++h) {
            const std::int64_t kv_head = h / sequence.group();
            if (h % sequence.group() == 0) {
                sequence.widen(op.qkv, sequence.key_slot(kv_head), 0, op.seq_len, keys);
                sequence.widen(op.qkv, sequence.value_slot(kv_head), 0, op.seq_len, values);
            }
            for (const auto [first, rows] : cut) {
                const std::int64_t seen = first + rows;
                sequence.widen(op.qkv, h, first, rows, query);
                multiply(check, query, Major::k, keys, Major::k, rows, seen, width, scores);
                softmax_kernel<<<static_cast<unsigned>(rows), kThreads, 0, check.stream()>>>(
                    scores, seen, mask_of(sequence, first), sequence.scale(), lse);
                CUDA_CHECK(cudaGetLastError());
                multiply(check, scores, Major::k, values, Major::mn, rows, width, seen, output);
                compare(check, "o", rows, width, sequence.head(op.o, h, first), band_of(output, width));
                compare(check, "lse", 1, rows, sequence.statistic(op.lse, h, first), band_of(lse, rows));
            }
        }
    }
    if (op.o_codes)
        compare_rounding(check, op.o_names, op.o_codes, op.o_codes.rows.dtype, op.o.rows, op.o.cols, live(check, op.o));
    const auto* next_tile = check.memory().at<std::int32_t>(op.next_tile);
    compare(
        check, "next_tile", 1, 1, [=] __device__(std::int64_t, std::int64_t) { return static_cast<float>(*next_tile); },
        [] __device__(std::int64_t, std::int64_t) { return 0.0f; });
}

}  // namespace coda::oracle
