// attention - host side of forward attention: tensor maps, order of work, launches
#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/hopper/attention/forward.cuh"
#include "kernels/hopper/attention/rounding_tile.h"
#include "kernels/hopper/attention/shape.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/sm90/device.h"
#include "kernels/hopper/sm90/overlapped_launch.h"
#include "kernels/hopper/sm90/tensor_map.h"
#include "kernels/ops/attention/hopper_codes.h"
#include "kernels/ops/attention/op.h"

namespace coda::hopper {

namespace {

template <class Tile, bool kDocuments>
Launch launch_forward(const Attention& op, const Memory& memory, const AttentionGeometry& geometry) {
    auto arguments = std::make_shared<ForwardArgumentsOf<Tile>>();
    arguments->query = sequence_map(memory, op.qkv, "Attention: qkv", op.seq_len, Tile::kQueries);
    arguments->key_value = sequence_map(memory, op.qkv, "Attention: qkv", op.seq_len, Tile::kKeys);
    arguments->out = sequence_map(memory, op.o, "Attention: o", op.seq_len, 64);
    arguments->doc_start = memory.at<std::int32_t>(op.doc_start);
    arguments->lse = memory.at<float>(op.lse);
    arguments->lse_ld = op.lse.ld;
    arguments->next_tile = reinterpret_cast<unsigned*>(memory.at<std::int32_t>(op.next_tile));
    arguments->seq_len = geometry.seq_len;
    arguments->heads = geometry.heads;
    arguments->kv_heads = geometry.kv_heads;
    arguments->scale = static_cast<float>(1 / std::sqrt(static_cast<double>(geometry.head_dim)));
    if constexpr (Tile::kRounds) arguments->codes = codes_arguments(op.name, op.o_names, op.o_codes, memory);
    arguments->order = forward_order<Tile>(op.seq_len, geometry.pairs(), geometry.group());

    const auto kernel = attention_forward<Tile, kDocuments>;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes));
    const auto blocks = static_cast<unsigned>(std::min(multiprocessors(), arguments->order.count()));
    return [kernel, arguments, blocks](Stream stream) {
        launch_overlapped(kernel, blocks, Tile::kThreads, Tile::kSharedBytes, stream, *arguments);
        print_stamps(stream);
    };
}

template <class Tile>
Launch launch_forward(const Attention& op, const Memory& memory, const AttentionGeometry& geometry) {
    return op.doc_start ? launch_forward<Tile, true>(op, memory, geometry)
                        : launch_forward<Tile, false>(op, memory, geometry);
}

/// Throws unless shapes and dtypes fit the kernel.
AttentionGeometry checked(const Attention& op) {
    const AttentionGeometry geometry = attention_geometry(op);
    require_operand(op.name, "o", op.o, op.qkv.rows, op.heads * op.head_dim, DType::bf16);
    if (op.o_codes)
        require_codes(op.name, op.o_names, op.o_codes, DType::f8e4m3, op.qkv.rows, op.heads * op.head_dim, DType::f32,
                      true);
    require_operand(op.name, "next_tile", op.next_tile, 1, 1, DType::i32);
    require_forward_limits(op.name, geometry,
                           op.head_dim == 64 ? ForwardTile<64>::kQueries : ForwardTile<128>::kQueries);
    return geometry;
}

}  // namespace

template <>
Plan choose(const Attention& op, const Request&) {
    checked(op);
    return {};
}

template <>
Launch bind(const Attention& op, const Plan&, const Memory& memory) {
    const AttentionGeometry geometry = checked(op);
    if (op.o_codes)
        return op.head_dim == 64 ? launch_forward<RoundingTile<ForwardTile<64>>>(op, memory, geometry)
                                 : launch_forward<RoundingTile<ForwardTile<128>>>(op, memory, geometry);
    return op.head_dim == 64 ? launch_forward<ForwardTile<64>>(op, memory, geometry)
                             : launch_forward<ForwardTile<128>>(op, memory, geometry);
}

}  // namespace coda::hopper
