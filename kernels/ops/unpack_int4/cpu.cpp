#include "kernels/cpu/execute.h"
#include "kernels/cpu/gemm_operands.h"
#include "kernels/math/rms.h"
#include "kernels/ops/unpack_int4/op.h"
#include "kernels/ops/unpack_int4/shape.h"

namespace coda::cpu {

namespace {

/// A unit's word from the place on.
std::uint32_t bits_at(const std::int32_t* unit, Int4Place place) {
    return static_cast<std::uint32_t>(unit[place.word]) >> place.bit;
}

}  // namespace

template <>
void execute(const UnpackInt4& op, const Memory& memory) {
    require_shape(op);
    dispatch_storage(op.name, op.working.dtype, [&]<class Storage, class Compute>(Types<Storage, Compute>) {
        const Operands operands(op.name, memory);
        const std::int64_t number = op.working.rows, width = op.working.cols;
        const auto units = rows_of<const std::int32_t>(operands, "units", op.units, op.units.rows, op.units.cols);
        const auto working = rows_of<Storage>(operands, "working", op.working, number, width);
        const auto* gamma = operands.get_optional<Compute>("gamma", op.gamma, 1, width);
#pragma omp parallel for
        for (std::int64_t row = 0; row < number; ++row)
            for (std::int64_t column = 0; column < width; ++column) {
                const auto row_in_unit = static_cast<int>(row % kInt4Rows);
                const auto column_in_unit = static_cast<int>(column % kInt4Group);
                const std::int32_t* unit = units[row / kInt4Rows] + column / kInt4Group * kInt4UnitWords;
                const int q = int4_of_code(bits_at(unit, int4_code(row_in_unit, column_in_unit)));
                const auto scale = std::bit_cast<float>(bits_at(unit, int4_scale(row_in_unit)) << 16);
                const Compute master = static_cast<Compute>(q) * Compute(scale);
                const Compute factor = gamma ? norm_factor(gamma[column]) : Compute(1);
                working[row][column] = Storage(master * factor);
            }
    });
}

}  // namespace coda::cpu
