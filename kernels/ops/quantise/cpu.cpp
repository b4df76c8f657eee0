// QuantiseF8 on the CPU, in groups of 16 rows: the transposed copy takes 16 neighbouring bytes of each.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/execute.h"
#include "kernels/cpu/f8.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/ops/quantise/shape.h"

namespace coda::cpu {

template <>
void execute(const QuantiseF8& op, const Memory& memory) {
    dispatch_storage(op.name, op.x.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        require_shape(op);
        const Operands operands(op.name, memory);
        const std::int64_t tokens = op.x.rows, width = op.x.cols;
        const auto x = rows_of<const Storage>(operands, "x", op.x, tokens, width);
        const RowFactor<Compute> rstd(operands, op.rstd, tokens);
        const Compute scale = *operands.get<Compute>("scale", op.codes.scale, 1, 1);
        auto* amax = operands.get_optional<Compute>("amax", op.codes.amax, 1, 1);
        const bool paired = op.codes.columns.order == ColumnOrder::paired;
        Compute largest = 0;
        with_f8(op.format(), [&]<class F8>(F8) {
            const auto rows = optional_rows_of<F8>(operands, "rows", op.codes.rows, tokens, width);
            const Rows<F8> columns{op.codes.columns ? memory.at<F8>(op.codes.columns) : nullptr, op.codes.columns.ld};
#pragma omp parallel for reduction(max : largest)
            for (std::int64_t first = 0; first < tokens; first += kF8Multiple)
                for (std::int64_t column = 0; column < width; ++column)
                    for (std::int64_t row = first; row < std::min(first + kF8Multiple, tokens); ++row) {
                        const Compute value = static_cast<Compute>(x[row][column]) * rstd[row];
                        const auto code = round_to_f8<F8>(scale * value);
                        if (rows) rows[row][column] = code;
                        if (columns) columns[column][paired ? paired_place(row) : row] = code;
                        if (std::abs(value) > largest) largest = std::abs(value);  // false for NaN
                    }
        });
        if (amax) *amax = std::max(*amax, largest);
    });
}

}  // namespace coda::cpu
