// attention_backward - host side: work space, tensor maps, order of work, launches
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/core/integers.h"
#include "kernels/hopper/attention/backward.cuh"
#include "kernels/hopper/attention/backward_finish.cuh"
#include "kernels/hopper/attention/backward_rows.cuh"
#include "kernels/hopper/attention/rounding_tile.h"
#include "kernels/hopper/attention/shape.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/device.h"
#include "kernels/hopper/sm90/overlapped_launch.h"
#include "kernels/hopper/sm90/tensor_map.h"
#include "kernels/ops/attention/hopper_codes.h"
#include "kernels/ops/attention/scratch.h"

namespace coda::hopper {

namespace {

static_assert(kSumRows == AttentionBackward::kSumRows);

BackwardScratch pointers_of(std::byte* base, const AttentionScratch& layout) {
    const auto at = [&]<class T>(T*& pointer, std::int64_t offset) { pointer = reinterpret_cast<T*>(base + offset); };
    BackwardScratch scratch{};
    at(scratch.dquery, layout.dquery);
    at(scratch.lse_log2, layout.lse);
    at(scratch.delta, layout.delta);
    at(scratch.start, layout.start);
    at(scratch.turns, layout.turns);
    at(scratch.ticket, layout.ticket);
    return scratch;
}

/// The passes over the rows of as many sequences as one grid holds.
struct RowPass {
    dim3 grid;
    RowStatisticsArguments arguments;
};

/// The passes of all sequences, with `lanes` threads per row. The kernel counts sequences from 0 in every launch, so
/// what it reads and writes begins at the launch's first sequence. The strides of the whole remain.
std::vector<RowPass> row_passes(const AttentionGeometry& geometry, int lanes, const RowStatisticsArguments& rows) {
    const std::int64_t blocks = ceil_div(std::int64_t{rows.padded} * lanes, std::int64_t{kRowStatisticsThreads});
    const auto shift = [](auto*& pointer, std::int64_t elements) {
        if (pointer != nullptr) pointer += elements;
    };
    std::vector<RowPass> passes;
    for (std::int64_t first = 0; first < geometry.batch; first += limits::kMaxGridY) {
        const auto batch = static_cast<unsigned>(std::min(limits::kMaxGridY, geometry.batch - first));
        RowStatisticsArguments& each =
            passes
                .emplace_back(
                    RowPass{dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(geometry.heads), batch), rows})
                .arguments;
        const std::int64_t token = first * geometry.seq_len, row = first * rows.padded;
        shift(each.out, token * rows.out_ld);
        shift(each.dout, token * rows.dout_ld);
        shift(each.lse, token);
        shift(each.delta, token);
        shift(each.doc_start, token);
        shift(each.scratch.lse_log2, row);
        shift(each.scratch.delta, row);
        shift(each.scratch.start, row);
        if (first > 0) each.turns = 0;  // the first launch clears all of them
    }
    return passes;
}

NormBackwardArguments norm_arguments_of(const AttentionBackward& op, const Memory& memory) {
    return {sequence_map(memory, op.pre, "pre", op.seq_len, 64),
            memory.at<float>(op.rho),
            op.rho.ld,
            reinterpret_cast<const float2*>(memory.at<float>(op.gain)),
            memory.at<float>(op.dgain),
            static_cast<int>(op.sum_tiles(op.qkv.rows, op.seq_len)),
            static_cast<int>(op.sum_tiles(op.seq_len, op.seq_len)),
            static_cast<float>(op.eps)};
}

BiasBackwardArguments bias_arguments_of(const AttentionBackward& op, const Memory& memory) {
    return {reinterpret_cast<const float2*>(memory.at<float>(op.bias)), memory.at<float>(op.dbias), op.dbias.ld,
            static_cast<int>(op.sum_tiles(op.seq_len, op.seq_len))};
}

template <class Tile>
Launch launch_backward(const AttentionBackward& op, const Memory& memory, const AttentionGeometry& geometry,
                       const RopeBackwardArguments& rope, RowStatisticsArguments rows) {
    static_assert(AttentionScratch::kPaddedRows == Tile::kKeys &&
                  AttentionScratch::query_rows(Tile::kHeadDim) == Tile::kQueries);
    const AttentionScratch layout(op);
    const auto padded = static_cast<int>(layout.padded);
    std::byte* base = memory.address(op.scratch);
    auto arguments = std::make_shared<BackwardArgumentsOf<Tile>>();
    arguments->scratch = pointers_of(base, layout);
    require(op.scratch.bytes() >= layout.bytes && reinterpret_cast<std::uintptr_t>(base) % 256 == 0, op.name,
            ": scratch has ", op.scratch.bytes(), " bytes, needed are ", layout.bytes, " from a multiple of 256");
    arguments->key_value = sequence_map(memory, op.qkv, "qkv", op.seq_len, Tile::kKeys);
    arguments->query = sequence_map(memory, op.qkv, "qkv", op.seq_len, Tile::kQueries);
    arguments->dout = sequence_map(memory, op.dout, "dout", op.seq_len, Tile::kQueries);
    if constexpr (Tile::kRounds)
        arguments->codes = codes_arguments(op.name, op.dqkv_names, op.dqkv.codes, memory);
    else
        arguments->dqkv = sequence_map(memory, op.dqkv, "dqkv", op.seq_len, 64);
    arguments->rope = rope;
    arguments->seq_len = geometry.seq_len;
    arguments->padded = padded;
    arguments->batch = geometry.batch;
    arguments->heads = geometry.heads;
    arguments->kv_heads = geometry.kv_heads;
    arguments->group = geometry.group();
    arguments->scale = static_cast<float>(1 / std::sqrt(static_cast<double>(geometry.head_dim)));
    arguments->order = backward_order<Tile>(op.seq_len, geometry.pairs(), geometry.group());

    rows.lse = memory.at<float>(op.lse);
    rows.lse_ld = op.lse.ld;
    rows.doc_start = memory.at<std::int32_t>(op.doc_start);
    rows.scratch = arguments->scratch;
    rows.turns = static_cast<int>((layout.bytes - layout.turns) / 4);
    rows.seq_len = geometry.seq_len;
    rows.padded = padded;
    rows.batch = geometry.batch;
    FinishArgumentsOf<Tile> finish{};
    finish.rows = Tile::kNorm ? sequence_map(memory, op.pre, "pre", op.seq_len, Tile::kQueries) : arguments->query;
    finish.dqkv = arguments->dqkv;
    finish.dquery = arguments->scratch.dquery;
    finish.rope = rope;
    finish.seq_len = geometry.seq_len;
    finish.padded = padded;
    finish.batch = geometry.batch;
    finish.heads = geometry.heads;
    using Order = FinishOrder<Tile>;
    finish.width = Order::width_of(geometry.heads);
    finish.scale = arguments->scale;
    if constexpr (Tile::kRounds) finish.codes = arguments->codes;
    if constexpr (Tile::kNorm) finish.norm = arguments->norm = norm_arguments_of(op, memory);
    if constexpr (Tile::kBias) finish.bias = arguments->bias = bias_arguments_of(op, memory);
    constexpr int kLanes = Tile::kHeadDim / 8;
    const bool given = rows.delta != nullptr;
    const auto statistics = given ? attention_row_statistics<1> : attention_row_statistics<kLanes>;
    const std::vector<RowPass> passes = row_passes(geometry, given ? 1 : kLanes, rows);

    const auto kernel = attention_backward<Tile>;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes));
    constexpr int kFinishBytes = FinishShared<Tile>::kBytes;
    CUDA_CHECK(
        cudaFuncSetAttribute(attention_finish_dquery<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, kFinishBytes));
    const auto blocks = static_cast<unsigned>(std::min(multiprocessors(), arguments->order.count()));
    const std::int64_t groups =
        geometry.batch * ceil_div(op.seq_len, std::int64_t{Tile::kQueries}) * (geometry.heads / finish.width);
    const auto finish_blocks = static_cast<unsigned>(
        Order::kPersistent ? std::min(std::int64_t{multiprocessors()} * Order::kBlocks, groups) : groups);
    return [=](Stream stream) {
        for (const RowPass& each : passes)
            launch_overlapped(statistics, each.grid, kRowStatisticsThreads, 0, stream, each.arguments);
        launch_overlapped(kernel, blocks, Tile::kThreads, Tile::kSharedBytes, stream, *arguments);
        launch_overlapped(attention_finish_dquery<Tile>, finish_blocks, kFinishDQueryThreads, kFinishBytes, stream,
                          finish);
        print_stamps(stream);
    };
}

template <template <int, bool> class Tile>
struct TileTemplate {};

/// Throws unless shapes and dtypes fit the kernels.
AttentionGeometry checked(const AttentionBackward& op) {
    const AttentionGeometry geometry = attention_geometry(op);
    require_backward_limits(op.name, geometry, AttentionScratch(op).padded);
    const std::int64_t tokens = op.qkv.rows, width = op.heads * op.head_dim;
    require_operand(op.name, "dout", op.dout, tokens, width, DType::bf16);
    require_together(op);
    if (op.dqkv.codes)
        require_codes(op.name, op.dqkv_names, op.dqkv.codes, DType::f8e5m2, tokens, op.qkv.cols, DType::f32, false);
    else
        require_operand(op.name, "dqkv", op.dqkv, tokens, op.qkv.cols, DType::bf16);
    if (op.o) {
        require_operand(op.name, "o", op.o, tokens, width, DType::bf16);
        require(op.o.ld % 8 == 0, op.name, ": rows of o begin at multiples of ", op.o.ld * 2, " bytes, 16 are needed");
    } else {
        require_operand(op.name, "delta", op.delta, op.heads, tokens, DType::f32);
    }
    if (!op.dot) return geometry;
    require_operand(op.name, "dot", op.dot, op.heads + 2 * op.kv_heads, tokens, DType::f32);
    if (op.rstd) require_operand(op.name, "rstd", op.rstd, 1, tokens, DType::f32);
    if (op.rope) {
        require_operand(op.name, "positions", op.positions, 1, tokens, DType::i32);
        require_operand(op.name, "rope", op.rope, op.rope.rows, op.head_dim, DType::f32);
        require(op.rope.ld == op.head_dim, op.name, ": rope has gaps between its rows (ld ", op.rope.ld, ")");
    }
    if (op.bias) {
        require_operand(op.name, "bias", op.bias, 1, op.qkv.cols, DType::f32);
        require_operand(op.name, "dbias", op.dbias, op.sum_tiles(tokens, op.seq_len), op.qkv.cols, DType::f32);
    }
    if (!op.gain) return geometry;
    const std::int64_t normed = op.heads + op.kv_heads;
    require_operand(op.name, "gain", op.gain, 2, op.head_dim, DType::f32);
    require_operand(op.name, "pre", op.pre, tokens, normed * op.head_dim, DType::bf16);
    require_operand(op.name, "rho", op.rho, normed, tokens, DType::f32);
    require_operand(op.name, "dgain", op.dgain, normed * op.sum_tiles(tokens, op.seq_len), op.head_dim, DType::f32);
    for (const View* packed : {static_cast<const View*>(&op.gain), static_cast<const View*>(&op.dgain)})
        require(packed->ld == op.head_dim, op.name, ": gain and dgain have no gaps between their rows");
    return geometry;
}

}  // namespace

template <>
Plan choose(const AttentionBackward& op, const Request&) {
    checked(op);
    Plan plan;
    plan.scratch_bytes = op.scratch_bytes();
    require(op.scratch.bytes() >= plan.scratch_bytes, op.name, ": scratch has ", op.scratch.bytes(),
            " bytes, needed are ", plan.scratch_bytes);
    return plan;
}

template <>
Launch bind(const AttentionBackward& op, const Plan&, const Memory& memory) {
    const AttentionGeometry geometry = checked(op);
    RowStatisticsArguments rows{};
    if (op.o) {
        rows.out = reinterpret_cast<const __nv_bfloat16*>(memory.address(op.o));
        rows.dout = reinterpret_cast<const __nv_bfloat16*>(memory.address(op.dout));
        rows.out_ld = op.o.ld;
        rows.dout_ld = op.dout.ld;
    } else {
        rows.delta = memory.at<float>(op.delta);
        rows.delta_ld = op.delta.ld;
    }
    RopeBackwardArguments rope{};
    if (op.dot)
        rope = {memory.at<std::int32_t>(op.positions), reinterpret_cast<const float2*>(memory.at<float>(op.rope)),
                memory.at<float>(op.rstd), memory.at<float>(op.dot), op.dot.ld};
    const auto launch = [&]<template <int, bool> class Tile>(TileTemplate<Tile>) {
        const auto of_tile = [&]<class One>() {
            return op.dqkv.codes ? launch_backward<RoundingTile<One>>(op, memory, geometry, rope, rows)
                                 : launch_backward<One>(op, memory, geometry, rope, rows);
        };
        const auto of_head_dim = [&]<int kHeadDim>() {
            return op.doc_start ? of_tile.template operator()<Tile<kHeadDim, true>>()
                                : of_tile.template operator()<Tile<kHeadDim, false>>();
        };
        return op.head_dim == 64 ? of_head_dim.template operator()<64>() : of_head_dim.template operator()<128>();
    };
    if (op.gain) return launch(TileTemplate<NormBackwardTile>());
    return op.bias ? launch(TileTemplate<BiasBackwardTile>()) : launch(TileTemplate<BackwardTile>());
}

}  // namespace coda::hopper
