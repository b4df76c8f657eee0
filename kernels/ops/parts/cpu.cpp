// ReduceParts on the CPU.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/access.h"
#include "kernels/cpu/execute.h"
#include "kernels/ops/parts/op.h"

namespace coda::cpu {

namespace {

template <class T>
void reduce(const ReduceParts& op, const Memory& memory) {
    const Operands operands(ReduceParts::name, memory);
    const std::int64_t count = op.parts.cols;
    require(op.parts.rows >= 1, ReduceParts::name, ": operand parts has no row");
    const T* parts = operands.get<T>("parts", op.parts, op.parts.rows, count);
    T* result = operands.get<T>("out", op.out, 1, count);
    constexpr std::int64_t kBlock = 1 << 14;
#pragma omp parallel for
    for (std::int64_t first = 0; first < count; first += kBlock) {
        const std::int64_t end = std::min(first + kBlock, count);
        std::copy(parts + first, parts + end, result + first);
        for (std::int64_t row = 1; row < op.parts.rows; ++row) {
            const T* part = parts + row * op.parts.ld;
            if (op.how == ReduceParts::How::sum) {
                for (std::int64_t i = first; i < end; ++i) result[i] += part[i];
            } else {
                for (std::int64_t i = first; i < end; ++i)
                    result[i] = part[i] > result[i] || std::isnan(part[i]) ? part[i] : result[i];
            }
        }
    }
}

}  // namespace

template <>
void execute(const ReduceParts& op, const Memory& memory) {
    switch (op.parts.dtype) {
        case DType::f64: return reduce<double>(op, memory);
        case DType::f32: return reduce<float>(op, memory);
        default:
            throw Error(
                text(ReduceParts::name, ": operand parts is ", name_of(op.parts.dtype), ", expected f64 or f32"));
    }
}

}  // namespace coda::cpu
