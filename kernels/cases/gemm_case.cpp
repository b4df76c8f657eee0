#include "kernels/cases/gemm_case.h"

namespace coda::cases {

double GemmCase::bytes() const {
    double total = 0;
    for (const Buffer& buffer : buffers)
        total += static_cast<double>(buffer.view.bytes()) * (buffer.access == Access::inout ? 2 : 1);
    return total;
}

View GemmBuilder::add(const char* name, DType dtype, std::int64_t rows, std::int64_t columns, Fill fill, double scale,
                      Access access) {
    const std::int64_t gap = rows > 1 && (dtype == DType::bf16 || is_f8(dtype)) ? options_.gap : 0;
    const View view{static_cast<BufferId>(case_.buffers.size()), dtype, 0, rows, columns, columns + gap, 0};
    case_.buffers.push_back({name, view, fill, scale, access});
    return view;
}

}  // namespace coda::cases
