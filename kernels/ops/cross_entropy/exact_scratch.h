// How ExactCrossEntropy's scratch is divided on the GPU. A position is a row's place in the list of flagged rows.
#pragma once

#include <cstdint>

#include "kernels/core/integers.h"

namespace coda {

/// Byte offsets. Columns are cut into kSlices parts, each with results of its own, so that a single flagged row keeps
/// that many blocks busy.
struct ExactScratch {
    static constexpr std::int64_t kSlices = 32;

    std::int64_t list;          // 1 + M i32: how many rows are flagged, and which, in order
    std::int64_t target_logit;  // M fp32, by position
    std::int64_t largest;       // (kSlices, M) pairs fp32: largest logit, Σ exp(l - largest)
    std::int64_t sums;          // (kSlices, M) pairs fp64: Σ g, Σ g (l - l_target); absent in an evaluation
    std::int64_t bytes;

    explicit ExactScratch(std::int64_t rows, bool gradient) {
        std::int64_t end = 0;
        const auto place = [&](std::int64_t size) {
            const std::int64_t first = end;
            end += round_up(size, 256);
            return first;
        };
        list = place(4 * (1 + rows));
        target_logit = place(4 * rows);
        largest = place(8 * kSlices * rows);
        sums = gradient ? place(16 * kSlices * rows) : end;
        bytes = end;
    }
};

}  // namespace coda
