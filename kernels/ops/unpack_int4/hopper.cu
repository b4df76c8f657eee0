// unpack_int4 - a matrix of the working copy from 4-bit integers
//
//   working = round(q scale), with gamma round(q scale norm_factor(gamma)), gamma over the columns
//   q and scale in units (kernels/math/int4.h), gamma (K) fp32, working (N, K) bf16; N a multiple of 16, K of 128
//
// Bound by memory, 2.5 bytes per element. A thread takes four neighbouring words of codes: of rows r and r + 8 of a
// unit, eight neighbouring columns of each half. The threads of a warp then read 256 bytes in a row, and write 128 of
// each of 4 rows at a time.
#include <cuda_runtime.h>

#include "kernels/core/integers.h"
#include "kernels/core/limits.h"
#include "kernels/hopper/plan.h"
#include "kernels/hopper/pointwise/operands.h"
#include "kernels/hopper/pointwise/vectors.cuh"
#include "kernels/hopper/sm90/check.h"
#include "kernels/math/int4.h"
#include "kernels/math/rms.h"
#include "kernels/ops/unpack_int4/op.h"
#include "kernels/ops/unpack_int4/shape.h"

namespace coda::hopper {

namespace {

constexpr int kThreads = 256, kUnitThreads = kInt4CodeWords / 4, kBlockUnits = kThreads / kUnitThreads;
constexpr int kUnitGroups = kInt4Group / 8, kHalfGroups = kUnitGroups / 2;  // of 8 columns
static_assert(kInt4UnitWords % 4 == 0, "units begin at whole vectors where rows of them do");

struct UnpackArguments {
    const std::uint32_t* units;
    const float4* gamma;  // may be null
    uint4* working;
    unsigned count, width;              // units: of the matrix, and of a row
    std::int64_t units_ld, working_ld;  // in words, and in groups of 8 columns
};

__global__ __launch_bounds__(kThreads) void unpack_int4(const UnpackArguments arguments) {
    const unsigned at = blockIdx.x * kBlockUnits + threadIdx.x / kUnitThreads;
    if (at >= arguments.count) return;
    const unsigned unit_row = at / arguments.width, unit_column = at % arguments.width;
    const auto thread = static_cast<int>(threadIdx.x % kUnitThreads);
    const int row = thread / kHalfGroups, group = thread % kHalfGroups;
    const std::uint32_t* const unit =
        arguments.units + unit_row * arguments.units_ld + std::int64_t{unit_column} * kInt4UnitWords;
    const uint4 codes = __ldcs(reinterpret_cast<const uint4*>(unit + int4_code(row, 8 * group).word));
    const std::uint32_t scales = __ldg(unit + int4_scale(row).word);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const std::int64_t to = std::int64_t{unit_column} * kUnitGroups + half * kHalfGroups + group;
        float factors[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        if (arguments.gamma != nullptr) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float4 gamma = __ldg(arguments.gamma + 2 * to + i);
                factors[4 * i] = norm_factor(gamma.x);
                factors[4 * i + 1] = norm_factor(gamma.y);
                factors[4 * i + 2] = norm_factor(gamma.z);
                factors[4 * i + 3] = norm_factor(gamma.w);
            }
        }
#pragma unroll
        for (int far = 0; far < kInt4Rows; far += 8) {
            const float scale = __uint_as_float(scales >> int4_scale(far).bit << 16);
            Eight eight;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const std::uint32_t first = half == 0 ? codes.x : codes.z, second = half == 0 ? codes.y : codes.w;
                const int q = int4_of_code((i < 4 ? first : second) >> int4_code(far, i).bit);
                eight.value[i] = static_cast<float>(q) * scale * factors[i];
            }
            arguments.working[(std::int64_t{unit_row} * kInt4Rows + row + far) * arguments.working_ld + to] =
                pack(eight);
        }
    }
}

}  // namespace

template <>
Launch bind(const UnpackInt4& op, const Plan&, const Memory& memory) {
    require_shape(op);
    const PointwiseOperands operands(op.name, memory);
    const std::int64_t rows = op.working.rows, width = op.working.cols;
    UnpackArguments arguments{};
    arguments.working = reinterpret_cast<uint4*>(operands.get_vectors("working", op.working, rows, width));
    arguments.units = reinterpret_cast<const std::uint32_t*>(
        operands.get_vectors<std::int32_t>("units", op.units, op.units.rows, op.units.cols));
    if (op.gamma)
        arguments.gamma = reinterpret_cast<const float4*>(operands.get_vectors<float>("gamma", op.gamma, 1, width));
    const std::int64_t units = (rows / kInt4Rows) * (width / kInt4Group);
    const std::int64_t blocks = ceil_div(units, std::int64_t{kBlockUnits});
    limits::require_none(op.name, limits::tiles_problem("working", units));
    arguments.count = static_cast<unsigned>(units);
    arguments.width = static_cast<unsigned>(width / kInt4Group);
    arguments.units_ld = op.units.ld;
    arguments.working_ld = op.working.ld / 8;
    return [=](Stream stream) {
        unpack_int4<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(arguments);
        CUDA_CHECK(cudaGetLastError());
    };
}

template <>
Plan choose(const UnpackInt4& op, const Request&) {
    bind(op, {}, Memory::shapes_only());
    return {};
}

}  // namespace coda::hopper
