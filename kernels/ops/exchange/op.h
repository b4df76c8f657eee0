// Bytes from rank to rank, while other ops run. Notation: kernels/ops.h; N ranks, each with the same op on its own
// memory.
//
// An exchange is two ops. Between them the source must keep its values, and the target has none: FinishExchange reads
// the values that StartExchange has of both, so the hazard check sees whoever disturbs them.
#pragma once

#include "kernels/core/op.h"

namespace coda {

/// Begins to move `source`.
///   scatter: source (1, N n) is N parts, and part r goes to rank r, whose target (N, n) has in row s what rank s sent.
///            A reduce-scatter is this and ReduceParts.
///   gather:  source (1, n) goes to all ranks. Its own row of the target comes from itself.
/// A gather may work in place, without `target`: the source is part `rank` of N parts (1, N n) in one piece of memory,
/// `before` and `after` are the parts of lower and of higher ranks.
struct StartExchange {
    enum class How : std::uint8_t { scatter, gather };

    In<Vector> source;
    Out<Matrix> target;
    Out<Vector> before;  // absent at the first rank
    Out<Vector> after;   // absent at the last rank
    How how = How::scatter;
    std::int32_t ranks = 1, rank = 0;
    std::int32_t transfer = 0;  // its number (Peers)

    static constexpr bool between_ranks = true;
    static constexpr Traits traits{Trait::between_ranks, Trait::flops, Trait::tolerance};
    static constexpr const char* name = "StartExchange";
    static constexpr auto operands =
        fields(field("source", &StartExchange::source), field("target", &StartExchange::target),
               field("before", &StartExchange::before), field("after", &StartExchange::after));

    double flops() const { return 0; }
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kExact; }

    /// Elements of a part.
    std::int64_t part() const { return how == How::scatter ? source.cols / ranks : source.cols; }
};

/// Waits for the exchange that StartExchange of the same transfer began.
struct FinishExchange {
    In<Vector> source;     // of a scatter
    InOut<Matrix> target;  // (N, n), or (1, N n) of a gather in place
    std::int32_t transfer = 0;

    static constexpr bool between_ranks = true;
    static constexpr Traits traits{Trait::between_ranks, Trait::flops, Trait::tolerance};
    static constexpr const char* name = "FinishExchange";
    static constexpr auto operands =
        fields(field("source", &FinishExchange::source), field("target", &FinishExchange::target));

    double flops() const { return 0; }
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kExact; }
};

/// Throws Error, naming the operand, where operands do not fit together.
void require_exchange(const StartExchange& op);

}  // namespace coda
