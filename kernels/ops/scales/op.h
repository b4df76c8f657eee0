// The scales of FP8 tensors, one per tensor and a power of two, and what of a tensor a scale loses. Notation:
// kernels/ops.h.
//
// Scales are delayed: a step's scales follow from the largest magnitudes (amax) of the steps before. The op that rounds
// a tensor also writes its amax.
#pragma once

#include <array>
#include <vector>

#include "kernels/core/op.h"

namespace coda {

/// The scale of x̂, whose rows have an RMS of 1: no history is needed.
inline constexpr float kNormalisedScale = 4;
/// Stands for kNormalisedScale among the indices of UpdateScales::pairs.
inline constexpr std::int32_t kNormalised = -1;

/// From the amax of T tensors in this step to their scales in the next one. Once per update:
///
///   history[step mod W] = amax, in columns whose amax is finite, unless skip is not 0
///   scales   = the largest power of two s with s * (the largest of the column of history) <= 448, kept within 2^±63;
///              1 where that largest is 0
///   products = 1 / (scales[left] scales[right]);   amax = 0
///
/// Scales follow only from history, so a history that is saved and read again gives the same scales. The bounds make a
/// product of two scales and its inverse normal floats: all of it is exact, the same bits on the CPU and the GPU.
struct UpdateScales {
    InOut<Vector> amax;                              // (1, T) statistic
    InOut<Matrix> history;                           // (W, T) statistic, finite; 0 where nothing has been seen
    In<Scalar> step;                                 // i32
    In<Scalar> skip;                                 // i32, as AdamW's
    Out<Vector> scales;                              // (1, T) statistic
    Out<Vector> products;                            // (1, P) statistic, where pairs has elements
    std::vector<std::array<std::int32_t, 2>> pairs;  // P: left and right, indices of scales or kNormalised

    static constexpr Traits traits{Trait::flops, Trait::bytes_of, Trait::tolerance};
    static constexpr const char* name = "UpdateScales";
    static constexpr auto operands =
        fields(field("amax", &UpdateScales::amax), field("history", &UpdateScales::history),
               field("step", &UpdateScales::step), field("skip", &UpdateScales::skip),
               field("scales", &UpdateScales::scales), field("products", &UpdateScales::products));

    static constexpr int kLargestExponent = 63;  // of a scale
    std::int64_t window() const { return history.rows; }
    double flops() const { return static_cast<double>(history.count()); }
    /// Every row of history is read and one is written; an InOut operand counts twice.
    std::int64_t bytes_of(const View& operand) const {
        if (&operand != &history) return operand.bytes();
        return (history.bytes() + history.cols * size_of(history.dtype)) / 2;
    }
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kExact; }
};

/// What a scale loses of a tensor, from its codes: counts = (codes at the end of the range: the format's largest
/// number, or not finite; codes of 0). Counted are the rows 0, every, 2 every, ... of either copy of the tensor; they
/// have less than 2^31 elements. For steps that are logged: amax says of every step whether anything was saturated.
struct CountF8 {
    In<Matrix> codes;        // (M, N) f8e4m3 or f8e5m2, in either order; N a multiple of 16
    Out<Vector> counts;      // (1, 2) i32
    std::int64_t every = 1;  // positive

    static constexpr Traits traits{Trait::flops, Trait::bytes_of, Trait::tolerance};
    static constexpr const char* name = "CountF8";
    static constexpr auto operands = fields(field("codes", &CountF8::codes), field("counts", &CountF8::counts));

    std::int64_t counted_rows() const { return ceil_div(codes.rows, every); }
    double flops() const { return 2 * static_cast<double>(counted_rows() * codes.cols); }
    std::int64_t bytes_of(const View& operand) const {
        return &operand == &codes ? counted_rows() * codes.cols : operand.bytes();
    }
    static constexpr std::optional<Tolerance> tolerance(std::string_view, DType) { return kExact; }
};

}  // namespace coda
