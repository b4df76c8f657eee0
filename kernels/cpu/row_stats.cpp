#include "kernels/cpu/row_stats.h"

#include <cmath>

#include "kernels/cpu/dispatch.h"

namespace coda::cpu {

namespace {

template <class T>
RowStats stats_of(const T* row, std::int64_t cols) {
    RowStats stats;
    for (std::int64_t c = 0; c < cols; ++c) {
        const double magnitude = std::abs(static_cast<double>(row[c]));
        // Once NaN, amax compares false with everything and stays.
        if (magnitude > stats.amax || std::isnan(magnitude)) stats.amax = magnitude;
        stats.square += magnitude * magnitude;
        stats.zeros += magnitude == 0;
    }
    return stats;
}

}  // namespace

std::vector<RowStats> row_stats(const View& view, const Memory& memory) {
    std::vector<RowStats> stats(static_cast<std::size_t>(view.rows));
    dispatch_storage("row statistics", view.dtype, [&](auto types) {
        using T = typename decltype(types)::Storage;
        const T* elements = memory.at<T>(view);
#pragma omp parallel for
        for (std::int64_t r = 0; r < view.rows; ++r) {
            stats[static_cast<std::size_t>(r)] = stats_of(elements + r * view.ld, view.cols);
        }
    });
    return stats;
}

}  // namespace coda::cpu
