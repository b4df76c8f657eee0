// UnpackInt4, checked by its formula in op.h, one thread per element.
#include "kernels/math/int4.h"
#include "kernels/math/rms.h"
#include "kernels/ops/unpack_int4/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

template <>
void check_op(const UnpackInt4& op, OpCheck& check) {
    const auto* units = check.memory().at<std::int32_t>(op.units);
    const std::int64_t ld = op.units.ld;
    const Tensor gamma = op.gamma ? live(check, op.gamma) : Tensor{};
    const bool folds = static_cast<bool>(op.gamma);
    compare(check, "working", op.working.rows, op.working.cols, live(check, op.working),
            [=] __device__(std::int64_t row, std::int64_t column) {
                const std::int32_t* unit = units + row / kInt4Rows * ld + column / kInt4Group * kInt4UnitWords;
                const auto inside = static_cast<int>(row % kInt4Rows);
                const Int4Place code = int4_code(inside, static_cast<int>(column % kInt4Group));
                const Int4Place scale = int4_scale(inside);
                const int q = int4_of_code(static_cast<unsigned>(unit[code.word]) >> code.bit);
                const float master = q * __uint_as_float(static_cast<unsigned>(unit[scale.word]) >> scale.bit << 16);
                const float factor = folds ? norm_factor(gamma[column]) : 1.0f;
                return __bfloat162float(__float2bfloat16(master * factor));
            });
}

}  // namespace coda::oracle
