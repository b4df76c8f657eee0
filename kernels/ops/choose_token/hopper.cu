// choose_token - the next token of each running row, by the definition in kernels/math/sampling.h
//
// A block takes a row: row_choice.cuh.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/hopper/choice/row_choice.cuh"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/ops/choose_token/op.h"

namespace coda::hopper {

namespace {

constexpr int kChooseThreads = 512;

struct ChooseArguments {
    ChoiceRows rows;
    const void* logits;  // (rows, vocab)
    std::int64_t logits_ld;
    int vocab;
};

/// All threads of a CTA.
struct Block {
    static constexpr int kThreads = kChooseThreads, kWarps = kThreads / 32;
    choice::Shared<kWarps>& shared;

    __device__ void sync() const { __syncthreads(); }
};

template <class T>
__global__ __launch_bounds__(kChooseThreads, 1) void choose_token(ChooseArguments arguments) {
    const ChoiceRows& rows = arguments.rows;
    __shared__ choice::Shared<Block::kWarps> shared;
    const Block block{shared};
    const std::int64_t s = blockIdx.x;
    if (rows.state[s] != static_cast<std::int32_t>(RowState::running)) return;
    const ChoiceOptions options = rows.options[s];
    const sampling::Rules rules = sampling::rules_of(options);
    const choice::Row<T> row{static_cast<const T*>(arguments.logits) + s * arguments.logits_ld,
                             rows.seen == nullptr ? nullptr : rows.seen + s * rows.seen_ld, rules, arguments.vocab};
    const std::uint64_t draw = sampling::draw_of(options.seed, rows.lengths[s]);
    int bad = 0;
    const std::uint64_t best = choice::largest_of(row, block, bad);
    if (bad < arguments.vocab) {
        // Every thread has read the state before.
        if (threadIdx.x == 0) {
            rows.status[s] = bad;
            rows.state[s] = static_cast<std::int32_t>(RowState::failed);
        }
        return;
    }
    int token = threadIdx.x == 0 ? static_cast<int>(~static_cast<std::uint32_t>(best)) : -1;
    if (!rules.greedy)
        token = choice::token_of(row, block, sampling::value_of(static_cast<std::uint32_t>(best >> 32)), rules, draw);
    if (token >= 0) choice::advance(rows, s, token);
}

}  // namespace

template <>
Launch bind(const ChooseToken& op, const Plan&, const Memory& memory) {
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.logits.rows, vocab = op.logits.cols;
    require(vocab >= 1 && vocab <= sampling::kLargestVocab, op.name, ": logits of ", vocab, " tokens, must be 1 to ",
            sampling::kLargestVocab);
    const auto vector = [&](const char* name, const View& view) {
        return operands.get<std::int32_t>(name, view, 1, rows);
    };
    ChooseArguments arguments{};
    const auto* options = operands.get<std::int32_t>("options", op.options, 1, ChooseToken::kOptionWords * rows);
    require(reinterpret_cast<std::uintptr_t>(options) % alignof(ChoiceOptions) == 0, op.name,
            ": operand options is not aligned to ", alignof(ChoiceOptions), " bytes");
    arguments.rows.options = reinterpret_cast<const ChoiceOptions*>(options);
    const bool bf16 = op.logits.dtype == DType::bf16;
    if (bf16)
        arguments.logits = operands.get<Bf16>("logits", op.logits, rows, vocab);
    else
        arguments.logits = operands.get<float>("logits", op.logits, rows, vocab);
    arguments.logits_ld = op.logits.ld;
    if (op.end_tokens) {
        arguments.rows.end_tokens = operands.get<std::int32_t>("end_tokens", op.end_tokens, rows, op.end_tokens.cols);
        arguments.rows.end_ld = op.end_tokens.ld;
        arguments.rows.ends = static_cast<int>(op.end_tokens.cols);
    }
    arguments.rows.limits = vector("limits", op.limits);
    if (op.seen) {
        arguments.rows.seen = operands.get<std::int32_t>("seen", op.seen, rows, ceil_div(vocab, std::int64_t{32}));
        arguments.rows.seen_ld = op.seen.ld;
    }
    arguments.rows.lengths = vector("lengths", op.lengths);
    if (op.positions) arguments.rows.positions = vector("positions", op.positions);
    arguments.rows.state = vector("state", op.state);
    arguments.rows.token = vector("token", op.token);
    arguments.rows.status = vector("status", op.status);
    arguments.vocab = static_cast<int>(vocab);
    return [=](Stream stream) {
        const auto blocks = static_cast<unsigned>(rows);
        if (bf16)
            choose_token<__nv_bfloat16><<<blocks, kChooseThreads, 0, stream>>>(arguments);
        else
            choose_token<float><<<blocks, kChooseThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const ChooseToken& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
