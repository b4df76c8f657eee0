// The codes of attention's o and dqkv as its kernels take them. Host.
#pragma once

#include "kernels/hopper/attention/codes.cuh"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/ops/attention/codes.h"

namespace coda::hopper {

/// Throws Error where an address or a row is not at a multiple of 16 bytes.
inline CodesArguments codes_arguments(const char* op, const RoundedNames& names, const Rounded& codes,
                                      const Memory& memory) {
    const PointwiseOperands operands(op, memory);
    CodesArguments arguments{};
    with_f8(codes.rows.dtype, [&]<class F8>(F8) {
        const std::int64_t tokens = codes.rows.rows, width = codes.rows.cols;
        arguments.rows = reinterpret_cast<std::byte*>(operands.get_vectors<F8>(names.rows, codes.rows, tokens, width));
        if (!codes.columns) return;
        View columns = codes.columns;
        columns.order = ColumnOrder::natural;  // PointwiseOperands knows no other, and require_codes has seen it
        arguments.columns =
            reinterpret_cast<std::byte*>(operands.get_vectors<F8>(names.columns, columns, width, tokens));
    });
    arguments.scale = memory.at<float>(codes.scale);
    arguments.amax = memory.at<float>(codes.amax);
    arguments.rows_ld = codes.rows.ld;
    arguments.columns_ld = codes.columns.ld;
    return arguments;
}

}  // namespace coda::hopper
