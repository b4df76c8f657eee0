// The oracle against an op that is neither GEMM nor attention, run by its Hopper kernel and by cpu::run: two paths that
// share nothing with the oracle's own.
#pragma once

#include "tests/hopper/oracle_plants.h"

namespace coda::test {

using cases::Buffer;
using cases::Fill;

struct Operands {
    std::vector<Buffer> buffers;

    View add(DType dtype, std::int64_t rows, std::int64_t columns, Fill fill, double scale = 1, std::int64_t gap = 0) {
        const View view{static_cast<BufferId>(buffers.size()), dtype, 0, rows, columns, columns + gap, 0};
        buffers.push_back({"", view, fill, scale, Access::in});
        return view;
    }
    View statistic(std::int64_t columns, Fill fill, double scale = 1) {
        return add(DType::f32, 1, columns, fill, scale);
    }
    View scalar(double value) { return statistic(1, Fill::ones, value); }
    View flag() { return add(DType::i32, 1, 1, Fill::positions, 1); }  // 0
    View result(std::int64_t columns) { return statistic(columns, Fill::nothing); }
    Accumulate<Vector> accumulated(std::int64_t columns, bool accumulate) {
        if (!accumulate) return {result(columns), Beta::overwrite};
        return {statistic(columns, Fill::normal, 3), Beta::accumulate};
    }
    View scratch(std::int64_t bytes) {
        View view = add(DType::f32, 1, std::max<std::int64_t>(bytes, 4) / 4, Fill::nothing);
        view.dtype = DType::u8;
        view.cols = view.ld = std::max<std::int64_t>(bytes, 4);
        return view;
    }
};

/// named() on fresh operands, which an op in place needs for each mistake.
std::set<std::string> named_afresh(const Operands& operands, const Op& op, const Op& launched,
                                   const std::function<void(const Memory&)>& plant = {});

/// Both paths, each on fresh operands, with the whole work space and with one of `band_bytes`.
void judge(const Operands& operands, const Op& op, const std::string& label, std::int64_t band_bytes = 1 << 20,
           const std::set<std::string>& follows = {});

}  // namespace coda::test
