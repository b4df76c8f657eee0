// The GEMM of the CPU executor: C = A B in full precision of Compute, handed tile by tile to an epilogue.
//
//   C (M, N) = Σ_k A(m, k) B(k, n)
//
// Each operand is K-major or MN-major. Packing converts storage to Compute and absorbs the layout, so no transposed
// copy exists. C is cut into macro-tiles. One thread computes a tile over all of K and calls the epilogue while the
// tile is in cache. Tiles, and the order of every sum, depend only on the shape: any number of threads gives the same
// bits.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace coda::cpu {

/// Which index of a GEMM operand is contiguous in memory.
enum class Major : std::uint8_t { k, mn };

/// A(m, k) or B(k, n). ld: elements from one k to the next (MN-major), or from one m or n to the next (K-major).
template <class Storage>
struct GemmOperand {
    const Storage* data = nullptr;
    std::int64_t ld = 0;
    Major major = Major::k;
};

/// m, n, k >= 1. Macro-tiles begin at multiples of row_unit and column_unit, so that an epilogue that reduces over
/// blocks of that many rows or columns finds each block whole in one tile.
struct GemmShape {
    std::int64_t m = 0, n = 0, k = 0;
    std::int64_t row_unit = 1, column_unit = 1;
};

/// Finished accumulators of rows [row, row + rows) and columns [col, col + cols) of C.
template <class Compute>
struct AccumulatorTile {
    std::int64_t row = 0, col = 0, rows = 0, cols = 0;
    const Compute* data = nullptr;
    std::int64_t ld = 0;

    /// Accumulators of row `row + i`, columns from `col` on.
    const Compute* operator[](std::int64_t i) const { return data + i * ld; }
};

/// Size of a macro-tile, chosen only from the shape.
struct MacroTile {
    std::int64_t rows = 0, cols = 0;
};
MacroTile choose_macro_tile(const GemmShape& shape);

/// One thread's packed operands and accumulators.
template <class Compute>
class GemmWorkspace {
  public:
    explicit GemmWorkspace(const MacroTile& tile);

    /// Computes one macro-tile over all of K. Throws nothing.
    template <class Storage>
    AccumulatorTile<Compute> compute(const GemmShape& shape, const GemmOperand<Storage>& a,
                                     const GemmOperand<Storage>& b, std::int64_t row, std::int64_t col);

  private:
    struct Free {
        void operator()(Compute* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
    };
    using Block = std::unique_ptr<Compute[], Free>;
    static Block allocate(std::int64_t count) {
        return Block(new (std::align_val_t{64}) Compute[static_cast<std::size_t>(count)]);
    }

    MacroTile tile_;
    std::int64_t ld_;
    Block packed_a_, packed_b_, accumulators_;
};

/// Computes C and calls epilogue(const AccumulatorTile<Compute>&) once for every macro-tile, from several threads at
/// once. The epilogue must not throw.
template <class Compute, class Storage, class Epilogue>
void gemm(const GemmShape& shape, const GemmOperand<Storage>& a, const GemmOperand<Storage>& b,
          const Epilogue& epilogue) {
    const MacroTile tile = choose_macro_tile(shape);
    const std::int64_t row_tiles = (shape.m + tile.rows - 1) / tile.rows;
    const std::int64_t tiles = row_tiles * ((shape.n + tile.cols - 1) / tile.cols);
    const int threads = static_cast<int>(std::min<std::int64_t>(omp_get_max_threads(), tiles));
    std::vector<GemmWorkspace<Compute>> workspaces;  // here, as no exception may leave a parallel region
    for (int thread = 0; thread < threads; ++thread) workspaces.emplace_back(tile);

#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (std::int64_t index = 0; index < tiles; ++index) {
        // Row tiles are innermost: the columns of B, usually the large weight, come from memory once and stay in cache.
        GemmWorkspace<Compute>& workspace = workspaces[static_cast<std::size_t>(omp_get_thread_num())];
        epilogue(workspace.compute(shape, a, b, index % row_tiles * tile.rows, index / row_tiles * tile.cols));
    }
}

}  // namespace coda::cpu
