// LinearGelu and LinearGeluBackward on the CPU. Macro-tiles of the latter hold whole partial tiles, of columns and of
// rows.
#include <algorithm>
#include <vector>

#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/product.h"
#include "kernels/ops/linear_gelu/op.h"

namespace coda::cpu {

namespace {

template <Gelu kind, class T>
GeluValue<T> gelu_of(T z) {
    if constexpr (kind == Gelu::tanh) return tanh_gelu(z, logistic(tanh_gelu_argument(z)));
    return gelu(Gelu::exact, z);
}

/// Calls fn.operator()<kind>() for the op's kind.
template <class Fn>
void with_kind(Gelu kind, const Fn& fn) {
    kind == Gelu::tanh ? fn.template operator()<Gelu::tanh>() : fn.template operator()<Gelu::exact>();
}

/// The bias, or zeros in its place.
template <class Compute>
std::vector<Compute> bias_or_zeros(const Operands& operands, const View& view, std::int64_t n) {
    const Compute* bias = operands.get_optional<Compute>("bias", view, 1, n);
    return bias ? std::vector<Compute>(bias, bias + n) : std::vector<Compute>(static_cast<std::size_t>(n), Compute(0));
}

template <Gelu kind, class Storage, class Compute>
void forward(const LinearGelu& op, const Operands& operands, const LinearProduct<Storage>& product) {
    const RowFactor<Compute> rstd(operands, op.rstd, product.m);
    const std::vector<Compute> bias = bias_or_zeros<Compute>(operands, op.bias, product.n);
    const auto z = optional_rows_of<Storage>(operands, "z", op.z, product.m, product.n);
    const auto y = optional_rows_of<Storage>(operands, "y", op.y, product.m, product.n);

    product.template run<Compute>(1, 1, [&](const AccumulatorTile<Compute>& tile) {
        for (std::int64_t i = 0; i < tile.rows; ++i) {
            const std::int64_t row = tile.row + i;
            const Compute* acc = tile[i];
            const Compute* add = bias.data() + tile.col;
            const Compute scale = rstd[row];
            Storage* to_z = z ? z[row] + tile.col : nullptr;
            Storage* to_y = y ? y[row] + tile.col : nullptr;
            for (std::int64_t j = 0; j < tile.cols; ++j) {
                Storage stored;
                store(stored, scale * acc[j] + add[j]);
                if (to_z) to_z[j] = stored;
                if (to_y) store(to_y[j], gelu_of<kind>(static_cast<Compute>(stored)).y);
            }
        }
    });
}

template <Gelu kind, class Storage, class Compute>
void backward(const LinearGeluBackward& op, const Operands& operands, const LinearProduct<Storage>& product) {
    const std::int64_t m = product.m, n = product.n;
    require(op.tile > 0, op.name, ": tile ", op.tile, " must be positive");
    require(op.row_tile > 0, op.name, ": row_tile ", op.row_tile, " must be positive");
    const RowFactor<Compute> rstd(operands, op.rstd, m);
    const std::vector<Compute> bias = bias_or_zeros<Compute>(operands, op.bias, n);
    const auto z = rows_of<const Storage>(operands, "z", op.z, m, n);
    const auto dz = rows_of<Storage>(operands, "dz", op.dz, m, n);
    const auto y = optional_rows_of<Storage>(operands, "y", op.y, m, n);
    const auto dot = rows_of<Compute>(operands, "dot", op.dot, ceil_div(n, op.tile), m);
    const auto dbias = rows_of<Compute>(operands, "dbias", op.dbias, ceil_div(m, op.row_tile), n);

    product.template run<Compute>(op.row_tile, op.tile, [&](const AccumulatorTile<Compute>& tile) {
        for (std::int64_t i = 0; i < tile.rows; ++i) {
            const std::int64_t row = tile.row + i;
            const Compute factor = rstd[row];
            Compute* sum = dbias[row / op.row_tile];
            if (row % op.row_tile == 0) std::fill_n(sum + tile.col, tile.cols, Compute(0));
            for (std::int64_t first = 0; first < tile.cols; first += op.tile) {
                Compute part = 0;
                for (std::int64_t j = first; j < std::min(first + op.tile, tile.cols); ++j) {
                    const std::int64_t col = tile.col + j;
                    const auto value = static_cast<Compute>(z[row][col]);
                    const GeluValue<Compute> made = gelu_of<kind>(value);
                    const Compute gradient = tile[i][j] * made.slope;
                    // dz may be z: an element is loaded before it is stored.
                    store(dz[row][col], factor * gradient);
                    if (y) store(y[row][col], made.y);
                    part += (value - bias[static_cast<std::size_t>(col)]) * (factor * gradient);
                    sum[col] += gradient;
                }
                dot[(tile.col + first) / op.tile][row] = part;
            }
        }
    });
}

}  // namespace

template <>
void execute(const LinearGelu& op, const Memory& memory) {
    const Operands operands(op.name, memory);
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const LinearProduct<Storage> product(operands, op.a, op.w, WeightLayout::out_in);
        with_kind(op.kind, [&]<Gelu kind>() { forward<kind, Storage, Compute>(op, operands, product); });
    });
}

template <>
void execute(const LinearGeluBackward& op, const Memory& memory) {
    const Operands operands(op.name, memory);
    dispatch_storage(op.name, op.a.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const LinearProduct<Storage> product(operands, op.a, op.w, op.layout);
        with_kind(op.kind, [&]<Gelu kind>() { backward<kind, Storage, Compute>(op, operands, product); });
    });
}

}  // namespace coda::cpu
