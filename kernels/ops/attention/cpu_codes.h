// Codes of attention's results on the CPU: of what storage holds.
#pragma once

#include <algorithm>

#include "kernels/cpu/f8.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/cpu/largest.h"
#include "kernels/ops/attention/codes.h"

namespace coda::cpu {

template <class F8, class Storage, class Compute>
struct CodeRows {
    Rows<F8> rows, columns;  // columns may be null
    Compute scale;
    LargestOfThreads<Compute>& largest;

    void put(std::int64_t row, std::int64_t column, Compute value) const {
        const auto stored = static_cast<Compute>(static_cast<Storage>(value));
        const F8 code = round_to_f8<F8>(scale * stored);
        rows[row][column] = code;
        if (columns) columns[column][paired_place(row)] = code;
        largest.add(stored);
    }
};

/// Calls fn(CodeRows) with the rows of codes that require_codes takes, and raises amax to what fn has put there.
template <class F8, class Storage, class Compute, class Fn>
void with_code_rows(const Rounded& codes, const Memory& memory, const Fn& fn) {
    LargestOfThreads<Compute> largest;
    fn(CodeRows<F8, Storage, Compute>{{memory.at<F8>(codes.rows), codes.rows.ld},
                                      {memory.at<F8>(codes.columns), codes.columns.ld},
                                      *memory.at<Compute>(codes.scale),
                                      largest});
    auto* amax = memory.at<Compute>(codes.amax);
    *amax = std::max(*amax, largest.of_all());
}

}  // namespace coda::cpu
