#include "kernels/cpu/gemm.h"

#include <bit>
#include <cstring>
#include <utility>

#include "kernels/core/dtype.h"
#include "kernels/core/integers.h"

namespace coda::cpu {

namespace {

constexpr std::int64_t kDepth = 256;        // K per block: a B panel of kDepth x kNr stays in L1
constexpr std::int64_t kColumnBlock = 256;  // columns of B packed at once: with the A block, half of a 1 MiB L2
constexpr std::int64_t kRowBlock = 192;     // rows of a macro-tile, unless the shape needs others
constexpr std::int64_t kEnoughTiles = 16;   // with fewer macro-tiles, they are made smaller to feed more threads
constexpr std::int64_t kFewestRows = 48;    // of such smaller tiles: with fewer, packing B takes most of the time

template <class Compute>
struct Register {
    using type [[gnu::vector_size(32)]] = Compute;
};
template <class Compute>
using Lanes = typename Register<Compute>::type;
template <class Compute>
constexpr int kLanes = 32 / sizeof(Compute);

// Register tile: kMr rows of two vectors. 12 accumulators, 2 vectors of B and 1 broadcast of A fill 15 of the 16
// registers of AVX2, and 12 independent FMAs cover their latency.
constexpr int kMr = 6;
template <class Compute>
constexpr int kNr = 2 * kLanes<Compute>;

template <class Vector, class Element>
Vector load_as(const Element* from) {
    Vector value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
Lanes<double> load(const double* from) { return load_as<Lanes<double>>(from); }
Lanes<float> load(const float* from) { return load_as<Lanes<float>>(from); }
Lanes<float> load(const Bf16* from) {
    using Narrow [[gnu::vector_size(16)]] = std::uint16_t;
    return std::bit_cast<Lanes<float>>(__builtin_convertvector(load_as<Narrow>(from), Lanes<std::uint32_t>) << 16);
}

template <class Compute>
void store(Compute* to, Lanes<Compute> value) {
    std::memcpy(to, &value, sizeof value);
}

// Exchanges the off-diagonal quarters of every 2 step x 2 step block of a square of vectors. Calls with the steps
// n/2, ..., 1 transpose the square.
template <int step, class Compute, int... lane>
void exchange(Lanes<Compute>* rows, std::integer_sequence<int, lane...>) {
    constexpr int n = kLanes<Compute>;
    for (int i = 0; i < n; ++i) {
        if (i & step) continue;
        const Lanes<Compute> upper = rows[i], lower = rows[i + step];
        rows[i] = __builtin_shufflevector(upper, lower, ((lane & step) ? n + lane - step : lane)...);
        rows[i + step] = __builtin_shufflevector(upper, lower, ((lane & step) ? n + lane : lane + step)...);
    }
}
template <class Compute>
void transpose(Lanes<Compute>* rows) {
    constexpr auto lanes = std::make_integer_sequence<int, kLanes<Compute>>{};
    if constexpr (kLanes<Compute> == 8) exchange<4, Compute>(rows, lanes);
    exchange<2, Compute>(rows, lanes);
    exchange<1, Compute>(rows, lanes);
}

// Packed A: panels of kMr rows, (kMr, kDepth) for K-major operands and (depth, kMr) for MN-major ones, so that both are
// contiguous copies. The register tile broadcasts single elements and reads either layout. Rows past the operand are 0.
template <class Compute, class Storage>
void pack_a(const GemmOperand<Storage>& a, std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t depth,
            Compute* packed) {
    for (std::int64_t panel = 0; panel < rows; panel += kMr, packed += kMr * kDepth) {
        const std::int64_t valid = std::min<std::int64_t>(kMr, rows - panel);
        if (a.major == Major::k) {
            const Storage* from = a.data + (row + panel) * a.ld + k;
            for (std::int64_t i = 0; i < kMr; ++i)
                for (std::int64_t p = 0; p < depth; ++p)
                    packed[i * kDepth + p] = i < valid ? static_cast<Compute>(from[i * a.ld + p]) : Compute(0);
        } else {
            const Storage* from = a.data + k * a.ld + row + panel;
            if (valid == kMr) {
                for (std::int64_t p = 0; p < depth; ++p)
                    for (int i = 0; i < kMr; ++i) packed[p * kMr + i] = static_cast<Compute>(from[p * a.ld + i]);
            } else {
                for (std::int64_t p = 0; p < depth; ++p)
                    for (int i = 0; i < kMr; ++i)
                        packed[p * kMr + i] = i < valid ? static_cast<Compute>(from[p * a.ld + i]) : Compute(0);
            }
        }
    }
}

// Packed B: panels of kNr columns, (depth, kNr). Columns past the operand are 0.
template <class Compute, class Storage>
void pack_b(const GemmOperand<Storage>& b, std::int64_t col, std::int64_t cols, std::int64_t k, std::int64_t depth,
            Compute* packed) {
    constexpr int n = kLanes<Compute>;
    for (std::int64_t panel = 0; panel < cols; panel += kNr<Compute>, packed += kNr<Compute> * kDepth) {
        const std::int64_t valid = std::min<std::int64_t>(kNr<Compute>, cols - panel);
        const std::int64_t step_j = b.major == Major::k ? b.ld : 1;
        const std::int64_t step_p = b.major == Major::k ? 1 : b.ld;
        const Storage* from = b.data + (col + panel) * step_j + k * step_p;
        std::int64_t done = 0;  // depth packed by vectors; the rest is packed element by element
        if (valid == kNr<Compute> && b.major == Major::k) {
            for (; done + n <= depth; done += n) {
                for (int half = 0; half < kNr<Compute>; half += n) {
                    Lanes<Compute> square[n];
                    for (int j = 0; j < n; ++j) square[j] = load(from + (half + j) * b.ld + done);
                    transpose<Compute>(square);
                    for (int p = 0; p < n; ++p) store(packed + (done + p) * kNr<Compute> + half, square[p]);
                }
            }
        } else if (valid == kNr<Compute>) {
            for (; done < depth; ++done)
                for (int half = 0; half < kNr<Compute>; half += n)
                    store<Compute>(packed + done * kNr<Compute> + half, load(from + done * b.ld + half));
        }
        for (; done < depth; ++done)
            for (std::int64_t j = 0; j < kNr<Compute>; ++j)
                packed[done * kNr<Compute> + j] =
                    j < valid ? static_cast<Compute>(from[j * step_j + done * step_p]) : Compute(0);
    }
}

// c (kMr, kNr) = or += the GEMM of one panel of A and one of B.
template <class Compute, std::int64_t row_step, std::int64_t depth_step>
void multiply_panels(std::int64_t depth, const Compute* a, const Compute* b, bool accumulate, Compute* c,
                     std::int64_t ld) {
    constexpr int n = kLanes<Compute>;
    Lanes<Compute> sum[kMr][2] = {};
    for (std::int64_t p = 0; p < depth; ++p) {
        const Lanes<Compute> left = load(b + p * kNr<Compute>), right = load(b + p * kNr<Compute> + n);
        for (int i = 0; i < kMr; ++i) {
            const Compute value = a[i * row_step + p * depth_step];
            sum[i][0] += value * left;
            sum[i][1] += value * right;
        }
    }
    for (int i = 0; i < kMr; ++i) {
        for (int half = 0; half < 2; ++half) {
            Compute* to = c + i * ld + half * n;
            store<Compute>(to, accumulate ? load(to) + sum[i][half] : sum[i][half]);
        }
    }
}

// The length that cuts `total` into equal pieces of at most about `target`, a multiple of `unit`.
std::int64_t even_piece(std::int64_t total, std::int64_t target, std::int64_t unit) {
    return round_up(ceil_div(total, ceil_div(total, target)), unit);
}

}  // namespace

MacroTile choose_macro_tile(const GemmShape& shape) {
    // Units smaller than a register tile are grouped, so that only the last tile has a ragged panel.
    const std::int64_t row_unit = shape.row_unit * ceil_div(kMr, shape.row_unit);
    const std::int64_t column_unit = shape.column_unit * ceil_div(kNr<float>, shape.column_unit);
    MacroTile tile{even_piece(shape.m, kRowBlock, row_unit), even_piece(shape.n, kColumnBlock, column_unit)};
    const auto too_few = [&](std::int64_t rows) {
        return rows > kFewestRows && ceil_div(shape.m, tile.rows) * ceil_div(shape.n, tile.cols) < kEnoughTiles;
    };
    // Where an epilogue's reduction needs many columns, the tile takes fewer rows.
    const auto too_large = [&](std::int64_t rows) {
        return rows > kMr && tile.rows * tile.cols > 2 * kRowBlock * kColumnBlock;
    };
    for (std::int64_t rows = kRowBlock; too_few(rows) || too_large(rows);) {
        rows /= 2;
        tile.rows = even_piece(shape.m, rows, row_unit);
    }
    return tile;
}

template <class Compute>
GemmWorkspace<Compute>::GemmWorkspace(const MacroTile& tile)
    : tile_(tile),
      ld_(round_up(tile.cols, kNr<Compute>)),
      packed_a_(allocate(round_up(tile.rows, kMr) * kDepth)),
      packed_b_(allocate(std::min(ld_, kColumnBlock) * kDepth)),
      accumulators_(allocate(round_up(tile.rows, kMr) * ld_)) {}

template <class Compute>
template <class Storage>
AccumulatorTile<Compute> GemmWorkspace<Compute>::compute(const GemmShape& shape, const GemmOperand<Storage>& a,
                                                         const GemmOperand<Storage>& b, std::int64_t row,
                                                         std::int64_t col) {
    const std::int64_t rows = std::min(tile_.rows, shape.m - row);
    const std::int64_t cols = std::min(tile_.cols, shape.n - col);
    const auto multiply = a.major == Major::k ? multiply_panels<Compute, kDepth, 1> : multiply_panels<Compute, 1, kMr>;
    for (std::int64_t k = 0; k < shape.k; k += kDepth) {
        const std::int64_t depth = std::min(kDepth, shape.k - k);
        pack_a(a, row, rows, k, depth, packed_a_.get());
        for (std::int64_t block = 0; block < cols; block += kColumnBlock) {
            const std::int64_t block_cols = std::min(kColumnBlock, cols - block);
            pack_b(b, col + block, block_cols, k, depth, packed_b_.get());
            for (std::int64_t j = 0; j < block_cols; j += kNr<Compute>)
                for (std::int64_t i = 0; i < rows; i += kMr)
                    multiply(depth, packed_a_.get() + i * kDepth, packed_b_.get() + j * kDepth, k > 0,
                             accumulators_.get() + i * ld_ + block + j, ld_);
        }
    }
    return {row, col, rows, cols, accumulators_.get(), ld_};
}

template class GemmWorkspace<float>;
template class GemmWorkspace<double>;
template AccumulatorTile<float> GemmWorkspace<float>::compute(const GemmShape&, const GemmOperand<float>&,
                                                              const GemmOperand<float>&, std::int64_t, std::int64_t);
template AccumulatorTile<float> GemmWorkspace<float>::compute(const GemmShape&, const GemmOperand<Bf16>&,
                                                              const GemmOperand<Bf16>&, std::int64_t, std::int64_t);
template AccumulatorTile<double> GemmWorkspace<double>::compute(const GemmShape&, const GemmOperand<double>&,
                                                                const GemmOperand<double>&, std::int64_t, std::int64_t);

}  // namespace coda::cpu
