// The steps of every GEMM program before its epilogue: give operands types, check them, start the GEMM.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/core/op.h"
#include "kernels/cpu/access.h"
#include "kernels/cpu/gemm.h"

namespace coda::cpu {

/// Rows of a typed matrix. Null where an optional operand is absent.
template <class T>
struct Rows {
    T* data = nullptr;
    std::int64_t ld = 0;

    T* operator[](std::int64_t row) const { return data + row * ld; }
    explicit operator bool() const { return data != nullptr; }
};

template <class T>
Rows<T> rows_of(const Operands& operands, const char* name, const View& view, std::int64_t rows, std::int64_t cols) {
    return {operands.get<std::remove_const_t<T>>(name, view, rows, cols), view.ld};
}
template <class T>
Rows<T> optional_rows_of(const Operands& operands, const char* name, const View& view, std::int64_t rows,
                         std::int64_t cols) {
    return view ? rows_of<T>(operands, name, view, rows, cols) : Rows<T>{};
}

/// to = value, rounded to storage. Loops that assign a whole Bf16 stay scalar, those that assign its bits vectorise.
template <class Storage, class Compute>
void store(Storage& to, Compute value) {
    if constexpr (std::is_same_v<Storage, Bf16>)
        to.bits = Bf16(value).bits;
    else
        to = static_cast<Storage>(value);
}

/// The value of an optional scalar, 1 where it is absent.
template <class T>
T scalar_or_one(const Operands& operands, const char* name, const View& view) {
    return view ? *operands.get<T>(name, view, 1, 1) : T(1);
}

/// The row factor of an op: rstd[m], or 1 where rstd is absent. Multiplying by 1 changes no bit.
template <class Compute>
struct RowFactor {
    const Compute* rstd = nullptr;

    RowFactor(const Operands& operands, const View& view, std::int64_t m)
        : rstd(operands.get_optional<Compute>("rstd", view, 1, m)) {}
    Compute operator[](std::int64_t row) const { return rstd ? rstd[row] : Compute(1); }
};

/// In place of a bias. NOTE: adding 0 would make a stored -0 a 0, and LLaMA's bits others.
struct NoBias {
    NoBias operator+(std::int64_t) const { return {}; }
    NoBias operator[](std::int64_t) const { return {}; }
    template <class Compute>
    friend Compute operator+(Compute value, NoBias) {
        return value;
    }
};

/// The GEMM of a linear op: acc = a wᵀ (out_in) or a w (in_out).
template <class Storage>
struct LinearProduct {
    std::int64_t m = 0, n = 0, k = 0;
    GemmOperand<Storage> a, w;

    LinearProduct(const Operands& operands, const View& a_view, const View& w_view, WeightLayout layout)
        : m(a_view.rows), k(a_view.cols) {
        const bool out_in = layout == WeightLayout::out_in;
        n = out_in ? w_view.rows : w_view.cols;
        require(m > 0 && n > 0 && k > 0, operands.op(), ": an empty GEMM, M ", m, ", N ", n, ", K ", k);
        a = {operands.get<Storage>("a", a_view, m, k), a_view.ld, Major::k};
        w = {operands.get<Storage>("w", w_view, out_in ? n : k, out_in ? k : n), w_view.ld,
             out_in ? Major::k : Major::mn};
    }

    /// Calls epilogue(tile) on macro-tiles that begin at multiples of row_unit and column_unit.
    template <class Compute, class Epilogue>
    void run(std::int64_t row_unit, std::int64_t column_unit, const Epilogue& epilogue) const {
        gemm<Compute>({m, n, k, std::min(row_unit, m), std::min(column_unit, n)}, a, w, epilogue);
    }
};

}  // namespace coda::cpu
