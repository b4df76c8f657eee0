// The embedding and its gradient. Notation: kernels/ops.h.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// x = table[token] in storage, with a position_table round(x + position_table[position]); rstd = 1/sqrt(mean x² +
/// eps). Centred: each row's mean is taken out of it before it is rounded for the last time. The caller must pass
/// tokens and positions that the tables have (the loader checks every id).
struct Embed {
    In<Vector> tokens;          // (1, M) i32
    In<Matrix> table;           // (V, d) storage or master
    In<Vector> positions;       // (1, M) i32, with position_table only
    In<Matrix> position_table;  // (P, d) storage, optional: learned positions
    Out<Matrix> x;              // (M, d) storage
    Out<Vector> rstd;           // (1, M) statistic, from x as stored
    double eps = 0;
    bool centred = false;

    static constexpr Traits traits{Trait::flops, Trait::bytes_of, Trait::tolerance};
    static constexpr const char* name = "Embed";
    static constexpr auto operands =
        fields(field("tokens", &Embed::tokens), field("table", &Embed::table), field("positions", &Embed::positions),
               field("position_table", &Embed::position_table), field("x", &Embed::x), field("rstd", &Embed::rstd));

    double flops() const { return 2 * static_cast<double>(x.count()); }
    std::int64_t bytes_of(const View& operand) const {
        if (&operand == &table) return gathered_bytes(table, tokens);
        return &operand == &position_table ? gathered_bytes(position_table, positions) : operand.bytes();
    }
    /// Means are sums of another order.
    std::optional<Tolerance> tolerance(std::string_view operand, DType) const {
        return operand == "x" && !centred ? std::optional(kExact) : std::nullopt;
    }
};

/// grad[token_m] += dx_m, of a position table with positions for tokens; rows of the same token are added in order of
/// m, in the gradient's type.
struct EmbedBackward {
    In<Vector> tokens;       // (1, M) i32
    In<Matrix> dx;           // (M, d) storage
    InOut<Matrix> grad;      // (V, d) gradient
    InOut<Scratch> scratch;  // for sorting

    static constexpr Traits traits{Trait::flops, Trait::bytes_of, Trait::scratch_bytes};
    static constexpr const char* name = "EmbedBackward";
    static constexpr auto operands =
        fields(field("tokens", &EmbedBackward::tokens), field("dx", &EmbedBackward::dx),
               field("grad", &EmbedBackward::grad), field("scratch", &EmbedBackward::scratch));

    /// Rows that a Hopper GPU sorts by token at a time; more come one such part after the other.
    static constexpr std::int64_t kSortedRows = 1 << 20;

    double flops() const { return static_cast<double>(dx.count()); }
    std::int64_t bytes_of(const View& operand) const {
        return &operand == &grad ? gathered_bytes(grad, tokens) : operand.bytes();
    }
    std::int64_t scratch_bytes() const;
};

}  // namespace coda
