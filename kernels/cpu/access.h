// Operands of one op as typed pointers, checked: errors name the op, the operand, and both shapes or dtypes.
#pragma once

#include <cstdint>

#include "kernels/core/memory.h"
#include "kernels/core/operand_check.h"
#include "kernels/cpu/dispatch.h"

namespace coda::cpu {

class Operands {
  public:
    Operands(const char* op, const Memory& memory) : op_(op), memory_(memory) {}

    /// First element of an operand that must be present with this shape and dtype.
    template <class T>
    T* get(const char* operand, const View& view, std::int64_t rows, std::int64_t cols) const {
        require_operand(op_, operand, view, rows, cols, dtype_of<T>);
        return memory_.at<T>(view);
    }

    /// The same, but nullptr where the operand is absent.
    template <class T>
    T* get_optional(const char* operand, const View& view, std::int64_t rows, std::int64_t cols) const {
        return view ? get<T>(operand, view, rows, cols) : nullptr;
    }

    /// Throws unless every entry of an i32 vector is in [0, limit).
    void require_indices(const char* operand, const std::int32_t* values, std::int64_t count,
                         std::int64_t limit) const {
        for (std::int64_t i = 0; i < count; ++i)
            require(values[i] >= 0 && values[i] < limit, op_, ": ", operand, "[", i, "] is ", values[i],
                    ", outside [0, ", limit, ")");
    }

    const char* op() const { return op_; }

  private:
    const char* op_;
    const Memory& memory_;
};

}  // namespace coda::cpu
