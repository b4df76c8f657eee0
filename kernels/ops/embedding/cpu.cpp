// Embed, EmbedBackward - rows of the table by token id, and the table's gradient.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/access.h"
#include "kernels/cpu/execute.h"
#include "kernels/ops/embedding/op.h"

namespace coda::cpu {

template <>
void execute(const Embed& op, const Memory& memory) {
    dispatch_storage(Embed::name, op.x.dtype, [&]<class Types>(Types) {
        using Storage = typename Types::Storage;
        using Compute = typename Types::Compute;
        const std::int64_t rows = op.tokens.cols, width = op.table.cols;
        const Operands operands(Embed::name, memory);
        const auto* tokens = operands.get<std::int32_t>("tokens", op.tokens, 1, rows);
        auto* x = operands.get<Storage>("x", op.x, rows, width);
        auto* rstd = operands.get<Compute>("rstd", op.rstd, 1, rows);
        operands.require_indices("tokens", tokens, rows, op.table.rows);
        const std::int32_t* positions = nullptr;
        const Storage* position_table = nullptr;
        if (op.position_table) {
            positions = operands.get<std::int32_t>("positions", op.positions, 1, rows);
            position_table = operands.get<Storage>("position_table", op.position_table, op.position_table.rows, width);
            operands.require_indices("positions", positions, rows, op.position_table.rows);
        }

        const auto gather = [&](const auto* table) {
#pragma omp parallel for
            for (std::int64_t m = 0; m < rows; ++m) {
                const auto* from = table + tokens[m] * op.table.ld;
                Storage* x_row = x + m * op.x.ld;
                Compute square = 0;
#pragma omp simd reduction(+ : square)
                for (std::int64_t j = 0; j < width; ++j) {
                    x_row[j] = static_cast<Storage>(from[j]);
                    const auto value = static_cast<Compute>(x_row[j]);
                    square += value * value;
                }
                if (position_table != nullptr || op.centred) {
                    // Of the token's row as rounded: the bits are the same where tokens are looked up in a copy.
                    const Storage* position =
                        position_table ? position_table + positions[m] * op.position_table.ld : nullptr;
                    const auto sum = [&](std::int64_t j) {
                        const auto token = static_cast<Compute>(x_row[j]);
                        return position ? token + static_cast<Compute>(position[j]) : token;
                    };
                    Compute mean = 0;
                    if (op.centred) {
                        for (std::int64_t j = 0; j < width; ++j) mean += sum(j);
                        mean /= static_cast<Compute>(width);
                    }
                    square = 0;
                    for (std::int64_t j = 0; j < width; ++j) {
                        x_row[j] = static_cast<Storage>(sum(j) - mean);
                        const auto value = static_cast<Compute>(x_row[j]);
                        square += value * value;
                    }
                }
                rstd[m] = Compute(1) / std::sqrt(square / static_cast<Compute>(width) + static_cast<Compute>(op.eps));
            }
        };
        if (op.table.dtype == op.x.dtype)
            gather(operands.get<Storage>("table", op.table, op.table.rows, width));
        else
            gather(operands.get<Compute>("table", op.table, op.table.rows, width));
    });
}

template <>
void execute(const EmbedBackward& op, const Memory& memory) {
    dispatch_storage(EmbedBackward::name, op.dx.dtype, [&]<class Types>(Types) {
        using Storage = typename Types::Storage;
        using Compute = typename Types::Compute;
        constexpr std::int64_t kColumns = 64;
        const std::int64_t rows = op.tokens.cols, width = op.grad.cols;
        const Operands operands(EmbedBackward::name, memory);
        const auto* tokens = operands.get<std::int32_t>("tokens", op.tokens, 1, rows);
        const auto* dx = operands.get<Storage>("dx", op.dx, rows, width);
        auto* grad = operands.get<Compute>("grad", op.grad, op.grad.rows, width);
        operands.require_indices("tokens", tokens, rows, op.grad.rows);

        // A stripe of columns belongs to one thread, which takes the rows in order of m: no sort, and one fixed order.
#pragma omp parallel for
        for (std::int64_t first = 0; first < width; first += kColumns) {
            const std::int64_t last = std::min(first + kColumns, width);
            for (std::int64_t m = 0; m < rows; ++m) {
                const Storage* from = dx + m * op.dx.ld;
                Compute* to = grad + tokens[m] * op.grad.ld;
                for (std::int64_t j = first; j < last; ++j) to[j] += static_cast<Compute>(from[j]);
            }
        }
    });
}

}  // namespace coda::cpu
