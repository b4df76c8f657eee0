// Shared memory of a GEMM kernel, as addresses: operand ring | epilogue slots | scratch | barriers.
#pragma once

#include "kernels/hopper/ptx/shared.cuh"
#include "kernels/hopper/sm90/tile_config.h"

namespace coda::hopper {

template <class Program, TileConfig tile>
struct SharedLayout {
    static constexpr int kSlotBytes = Program::Slot::kBytes;
    static constexpr int kScratchBytes = Program::kScratchBytes;
    static constexpr int kBytes = shared_bytes(tile, kSlotBytes, kScratchBytes);
    static_assert(kBytes <= kMaxSharedBytes, "the tile needs more than 227 KiB: take fewer stages or slots");

    std::uint32_t base;  // 1024-byte aligned

    __device__ explicit SharedLayout(std::byte* dynamic) {
        const std::uint32_t address = ptx::shared_address(dynamic);
        base = (address + kSwizzleAtomBytes - 1) / kSwizzleAtomBytes * kSwizzleAtomBytes;
    }

    __device__ std::uint32_t a(int stage) const { return base + stage * tile.stage_bytes(); }
    __device__ std::uint32_t b(int stage) const { return a(stage) + tile.a_bytes(); }
    __device__ std::uint32_t slot(int consumer, int slot) const {
        return base + tile.operand_bytes() + (consumer * tile.slots + slot) * kSlotBytes;
    }
    __device__ std::uint32_t scratch(int consumer) const {
        return base + tile.operand_bytes() + kConsumers * tile.slots * kSlotBytes + consumer * kScratchBytes;
    }

    __device__ std::uint32_t full(int stage) const { return barrier(stage); }
    __device__ std::uint32_t empty(int stage) const { return barrier(tile.stages + stage); }
    __device__ std::uint32_t ready(int consumer, int slot) const {
        return barrier(2 * tile.stages + consumer * tile.slots + slot);
    }
    __device__ std::uint32_t written(int consumer, int slot) const {
        return barrier(2 * tile.stages + (kConsumers + consumer) * tile.slots + slot);
    }
    __device__ std::uint32_t turn(int consumer) const {
        return barrier(2 * tile.stages + 2 * kConsumers * tile.slots + consumer);
    }

  private:
    __device__ std::uint32_t barrier(int index) const {
        return base + tile.operand_bytes() + kConsumers * (tile.slots * kSlotBytes + kScratchBytes) + 8 * index;
    }
};

}  // namespace coda::hopper
