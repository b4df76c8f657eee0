// The host side of a program's GEMM kernels: chooses a tile by the shapes; makes tensor maps, grid and attributes once;
// then launches.
#pragma once

#include <algorithm>
#include <memory>

#include "kernels/core/integers.h"
#include "kernels/hopper/gemm/expected_speed.h"
#include "kernels/hopper/gemm/kernel.cuh"
#include "kernels/hopper/gemm/problem.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/hopper/sm90/tensor_map.h"

namespace coda::hopper {

/// Tile operands of a launch, by panel. An absent view is neither loaded nor stored.
template <class Program>
struct TileOperands {
    View load[Program::Slot::kPanels];
    View store[Program::Slot::kPanels];
    std::uint32_t add = 0;  // panels that are added to fp32 memory
};

template <class Operand>
CUtensorMap operand_map(const Memory& memory, const View& view) {
    return tensor_map(memory, view, Operand::kBoxRows, Operand::kBoxColumns);
}

inline constexpr std::int64_t kSquareColumns = 2048;  // about the rows, and the columns, of a square wave

/// Whether all of B stays in L2. (33 MiB do not: with the order for a resident B, every wave then read B from memory,
/// and the GEMM took 1.3 times as long.)
inline bool b_stays(const Problem& problem, std::int64_t resident_bytes) {
    return problem.n * problem.k * size_of(problem.b.dtype) <= resident_bytes;
}

/// The order in which a tile configuration visits a shape. Where all of B stays in L2, or B has few columns, all of
/// them pass under few rows of A. Otherwise the configuration decides: either a group of B's columns stays in L2, or a
/// group of A's rows stays while all of B passes. If it names neither, groups of rows keep a wave close to a square.
inline TileOrder tile_order(const Problem& problem, const TileConfig& tile, const Raster& raster,
                            std::int64_t resident_bytes) {
    const int rows = tile.cluster_rows(), columns = tile.cluster_columns();
    TileOrder order{static_cast<int>(ceil_div(problem.m, rows)), static_cast<int>(ceil_div(problem.n, columns))};
    if (b_stays(problem, resident_bytes) || (raster.group_rows == 0 && problem.n <= kSquareColumns)) {
        order.group = order.tiles_n;
        order.along_n = true;
    } else if (raster.group_columns > 0) {
        order.group = std::max(1, raster.group_columns / columns);
        order.along_n = true;
    } else {
        const int group_rows = raster.group_rows > 0 ? raster.group_rows : static_cast<int>(kSquareColumns);
        order.group = std::max(1, group_rows / rows);
    }
    return order;
}

/// Tiles of the last wave that are cut into halves of their rows: all of them, where at most half of the clusters would
/// have one, otherwise none.
inline int halved_tiles(const TileConfig& tile, const TileOrder& order, int clusters) {
    const int last = order.count() % clusters;
    return tile.warpgroup_rows() == 2 * kPanelRows && order.splits == 1 && 2 * last <= clusters ? last : 0;
}

/// The kernel of a program and a tile: its launch configuration, and how many clusters the device holds at once.
template <class Program, class Tile, Major kMajorA, Major kMajorB>
struct GemmKernel {
    static constexpr TileConfig tile = Tile::config;
    static constexpr int kSharedBytes = SharedLayout<Program, tile>::kBytes;
    static constexpr auto function = gemm_kernel<Program, Tile, kMajorA, kMajorB>;

    /// Throws Error where the device cannot hold one cluster.
    static int active_clusters(const char* op) {
        CUDA_CHECK(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
        Configuration configuration(tile.cluster(), nullptr, false);
        int clusters = 0;
        CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, function, &configuration.config));
        require(clusters > 0, op, ": the device cannot hold one cluster of ", tile.cluster(), " blocks with ",
                kSharedBytes, " bytes of shared memory");
        return clusters;
    }

    struct Configuration {
        cudaLaunchAttribute attributes[2]{};
        cudaLaunchConfig_t config{};

        Configuration(int blocks, Stream stream, bool overlap) {
            attributes[0].id = cudaLaunchAttributeClusterDimension;
            attributes[0].val.clusterDim = {static_cast<unsigned>(tile.cluster()), 1, 1};
            attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
            attributes[1].val.programmaticStreamSerializationAllowed = 1;
            config.gridDim = dim3(static_cast<unsigned>(blocks));
            config.blockDim = dim3(kGemmThreads);
            config.dynamicSmemBytes = kSharedBytes;
            config.stream = stream;
            config.attrs = attributes;
            config.numAttrs = overlap ? 2 : 1;
        }
        Configuration(const Configuration&) = delete;
        Configuration& operator=(const Configuration&) = delete;
    };
};

template <class Program, class Tile, Major kMajorA, Major kMajorB>
Launch bind_gemm(const Problem& problem, const Plan& plan, const Memory& memory, const TileOperands<Program>& operands,
                 const typename Program::Arguments& program) {
    using Slot = typename Program::Slot;
    using Kernel = GemmKernel<Program, Tile, kMajorA, kMajorB>;
    constexpr TileConfig tile = Tile::config;

    auto arguments = std::make_shared<GemmArguments<Program>>();
    arguments->a = operand_map<TileOfA<tile, kMajorA>>(memory, problem.a);
    arguments->b = operand_map<TileOfB<tile, kMajorB>>(memory, problem.b);
    for (int panel = 0; panel < Slot::kPanels; ++panel) {
        const auto map = [&](const View& view) {
            const auto width = static_cast<int>(Slot::panel(panel).row_bytes / size_of(view.dtype));
            // NOTE: next to a transposed sub-tile lies the sub-tile of the next 64 rows, which is loaded much later.
            return Slot::transposed(panel) ? tensor_map(memory, view, width, kPanelRows, L2Fetch::own)
                                           : tensor_map(memory, view, kPanelRows, width);
        };
        if (operands.load[panel]) {
            arguments->load[panel] = map(operands.load[panel]);
            arguments->use.load |= 1u << panel;
        }
        if (operands.store[panel]) {
            arguments->store[panel] = map(operands.store[panel]);
            arguments->use.store |= 1u << panel;
        }
    }
    arguments->use.add = operands.add;
    arguments->m = static_cast<int>(problem.m);
    arguments->n = static_cast<int>(problem.n);
    arguments->k_tiles = static_cast<int>(ceil_div(ceil_div(problem.k, tile.k()), plan.splits));
    arguments->split_rows = static_cast<int>(plan.split_rows);
    arguments->program = program;

    const int clusters = Kernel::active_clusters(problem.op);
    arguments->order = tile_order(problem, tile, plan.raster, Program::kResidentBytes);
    arguments->order.splits = static_cast<int>(plan.splits);
    if (Program::kHalves) arguments->order.halved = halved_tiles(tile, arguments->order, clusters);
    const int blocks = tile.cluster() * std::min(clusters, arguments->order.count());

    return [arguments, blocks, overlap = plan.overlap](Stream stream) {
        const typename Kernel::Configuration launch(blocks, stream, overlap);
        CUDA_CHECK(cudaLaunchKernelEx(&launch.config, Kernel::function, *arguments));
    };
}

/// The kernels of a program, one per tile, for an op's choose and bind.
template <class Program_, Major kMajorA, Major kMajorB, class... Tiles>
struct Kernels {
    using Program = Program_;

    /// The tile of highest expected speed, or the requested one. Where an op has partials by tile, tiles of another
    /// width are left out.
    static Plan choose(const Problem& problem, const Request& request) {
        Plan plan;
        plan.candidates = {Tiles::config...};
        const TileConfig& any = plan.candidates.front();
        require(problem.a.dtype == any.operand_a && problem.b.dtype == any.operand_b, problem.op,
                ": its kernels multiply ", name_of(any.operand_a), " by ", name_of(any.operand_b),
                ", and the operands are ", name_of(problem.a.dtype), " and ", name_of(problem.b.dtype));
        plan.overlap = request.overlap;
        double best = 0;
        int index = 0;
        const auto compare = [&]<class Tile>() {
            const bool fits = problem.partial_columns == 0 || problem.partial_columns == Tile::config.n;
            if (fits && (request.candidate == -1 || request.candidate == index)) {
                const double speed = expected_speed<Tile>(problem.m, problem.n, problem.k);
                if (speed > best) {
                    best = speed;
                    plan.taken = index;
                }
            }
            ++index;
        };
        (compare.template operator()<Tiles>(), ...);
        require(plan.taken >= 0, problem.op, ": the op's partials have tiles of ", problem.partial_columns,
                " columns, for which no kernel was built; the op says which columns it takes");
        plan.raster = request.raster.value_or(plan.candidates[static_cast<std::size_t>(plan.taken)].raster);
        return plan;
    }

    static Launch bind(const Problem& problem, const Plan& plan, const Memory& memory,
                       const TileOperands<Program>& operands, const typename Program::Arguments& arguments) {
        Launch launch;
        int index = 0;
        const auto take = [&]<class Tile>() {
            if (index++ == plan.taken)
                launch = bind_gemm<Program, Tile, kMajorA, kMajorB>(problem, plan, memory, operands, arguments);
        };
        (take.template operator()<Tiles>(), ...);
        require(static_cast<bool>(launch), problem.op, ": its plan is of another op: tile ", plan.taken, " of ",
                sizeof...(Tiles));
        return launch;
    }
};

}  // namespace coda::hopper
