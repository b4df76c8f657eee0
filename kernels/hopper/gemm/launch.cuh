// Host side of a GEMM kernel: tensor maps, grid and attributes, once; then launches.
#pragma once

#include <algorithm>
#include <memory>

#include "kernels/hopper/gemm/kernel.cuh"
#include "kernels/hopper/gemm/problem.h"
#include "kernels/hopper/run.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/tensor_map.h"
#include "kernels/tiling.h"

namespace coda::hopper {

/// Tile operands of a launch, by panel; an absent view is not loaded or not stored.
template <class Program>
struct Tiles {
    View load[Program::Slot::kPanels];
    View store[Program::Slot::kPanels];
    std::uint32_t add = 0;  // panels that are added to fp32 memory
};

inline CUtensorMap operand_map(const Memory& memory, const View& view, Major major, int k_major_rows,
                               int mn_major_rows) {
    return major == Major::k ? tensor_map(memory, view, k_major_rows, kTileK)
                             : tensor_map(memory, view, mn_major_rows, 64);
}

/// Cluster tiles that cover M.
constexpr std::int64_t cluster_tiles(std::int64_t m, const TileConfig& tile) {
    return ceil_div(m, static_cast<std::int64_t>(tile.m) * tile.cluster);
}

inline constexpr std::int64_t kResidentBytes = 16 << 20;  // of one operand in L2, beside what streams through

/// Whether B stays in L2: then all its columns pass under few rows of A, which are read once. (At 33 MiB it does not:
/// the same order then read B from memory for every wave, and took 1.3 times as long.)
inline bool b_stays(const Problem& problem) { return problem.n * problem.k * 2 <= kResidentBytes; }

/// The order of a tile configuration for a shape. By rows, a group's rows of A should stay in L2 while all of B passes,
/// as B is read again for every group; long products keep the tiles near a square. Where B stays as a whole, groups are
/// what the machine has under way.
inline TileOrder tile_order(const Problem& problem, const TileConfig& tile, int clusters) {
    TileOrder order{static_cast<int>(cluster_tiles(problem.m, tile)), static_cast<int>(ceil_div(problem.n, tile.n))};
    const std::int64_t rows = static_cast<std::int64_t>(tile.m) * tile.cluster;
    if (tile.panel_n > 0) {
        order.group = tile.panel_n;
        order.along_n = true;
    } else if (b_stays(problem)) {
        order.group = std::max(1, clusters / order.tiles_n);
    } else if (tile.group_m > 0) {
        order.group = tile.group_m;
    } else {
        order.group = static_cast<int>(std::clamp<std::int64_t>(kResidentBytes / (rows * problem.k * 2), 8, 16));
    }
    return order;
}

template <class Program, class Tile, Major kMajorA, Major kMajorB>
Launch launch_gemm(const Problem& problem, const Memory& memory, const Tiles<Program>& tiles,
                   const typename Program::Arguments& program) {
    using Slot = typename Program::Slot;
    constexpr TileConfig tile = Tile::config;
    constexpr int kSharedBytes = SharedLayout<Program, tile>::kBytes;
    constexpr int kPanelRowsB = tile.n / 64 % tile.cluster == 0 ? kTileK : kTileK / tile.cluster;

    auto arguments = std::make_shared<GemmArguments<Program>>();
    arguments->a = operand_map(memory, problem.a, kMajorA, tile.m, kTileK);
    arguments->b = operand_map(memory, problem.b, kMajorB, tile.n / tile.cluster, kPanelRowsB);
    for (int panel = 0; panel < Slot::kPanels; ++panel) {
        const auto map = [&](const View& view) {
            const auto width = static_cast<int>(Slot::panel(panel).row_bytes / size_of(view.dtype));
            return tensor_map(memory, view, kPanelRows, width);
        };
        if (tiles.load[panel]) {
            arguments->load[panel] = map(tiles.load[panel]);
            arguments->use.load |= 1u << panel;
        }
        if (tiles.store[panel]) {
            arguments->store[panel] = map(tiles.store[panel]);
            arguments->use.store |= 1u << panel;
        }
    }
    arguments->use.add = tiles.add;
    arguments->m = static_cast<int>(problem.m);
    arguments->n = static_cast<int>(problem.n);
    arguments->k_tiles = static_cast<int>(ceil_div(problem.k, kTileK));
    arguments->program = program;

    const auto kernel = gemm_kernel<Program, Tile, kMajorA, kMajorB>;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(tile.cluster), 1, 1};
    cudaLaunchConfig_t config{};
    config.blockDim = dim3(kThreads);
    config.gridDim = dim3(static_cast<unsigned>(tile.cluster));
    config.dynamicSmemBytes = kSharedBytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
    require(clusters > 0, problem.op, ": the device cannot hold one cluster of ", tile.cluster, " blocks with ",
            kSharedBytes, " bytes of shared memory");
    arguments->order = tile_order(problem, tile, clusters);
    arguments->a_once = b_stays(problem);
    arguments->keep_b = tile.keep_b;
    const unsigned blocks = static_cast<unsigned>(tile.cluster * std::min(clusters, arguments->order.count()));

    return [kernel, arguments, blocks](Stream stream) {
        cudaLaunchAttribute cluster{};
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim = {static_cast<unsigned>(Tile::config.cluster), 1, 1};
        cudaLaunchConfig_t launch{};
        launch.gridDim = dim3(blocks);
        launch.blockDim = dim3(kThreads);
        launch.dynamicSmemBytes = kSharedBytes;
        launch.stream = stream;
        launch.attrs = &cluster;
        launch.numAttrs = 1;
        CUDA_CHECK(cudaLaunchKernelEx(&launch, kernel, *arguments));
    };
}

/// Expected speed of a tile for a shape, relative to others: its rate, less the last wave and ragged edges.
template <class Tile>
double expected_speed(const Problem& problem, int processors) {
    constexpr TileConfig tile = Tile::config;
    const int clusters = processors / tile.cluster;
    const std::int64_t count = cluster_tiles(problem.m, tile) * ceil_div(problem.n, static_cast<std::int64_t>(tile.n));
    const double computed = static_cast<double>(ceil_div(count, static_cast<std::int64_t>(clusters))) * clusters *
                            tile.cluster * tile.m * tile.n;
    const double k = static_cast<double>(problem.k);
    return Tile::rate * k / (k + Tile::fixed) * static_cast<double>(problem.m) * static_cast<double>(problem.n) /
           computed;
}

/// launch_gemm with the tile of highest expected speed.
template <class Program, Major kMajorA, Major kMajorB, class... Tiles_>
Launch launch_quickest(const Problem& problem, const Memory& memory, const Tiles<Program>& tiles,
                       const typename Program::Arguments& program) {
    int device = 0, processors = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    const double best = std::max({expected_speed<Tiles_>(problem, processors)...});
    Launch launch;
    const auto take = [&]<class Tile>() {
        if (!launch && expected_speed<Tile>(problem, processors) == best)
            launch = launch_gemm<Program, Tile, kMajorA, kMajorB>(problem, memory, tiles, program);
    };
    (take.template operator()<Tiles_>(), ...);
    return launch;
}

}  // namespace coda::hopper
