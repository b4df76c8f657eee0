// Operands of one op as typed device pointers, checked: errors name the op, the operand, and both shapes. Host.
#pragma once

#include <cstdint>

#include "kernels/core/memory.h"
#include "kernels/core/operand_check.h"

namespace coda::hopper {

class PointwiseOperands {
  public:
    PointwiseOperands(const char* op, const Memory& memory) : op_(op), memory_(memory) {}

    /// First element of an operand that must be present with this shape and T as its dtype.
    template <class T>
    T* get(const char* operand, const View& view, std::int64_t rows, std::int64_t cols) const {
        require_operand(op_, operand, view, rows, cols, dtype_of<T>);
        require(rows >= 1 && cols >= 1, op_, ": operand ", operand, " is empty");
        return memory_.at<T>(view);
    }

    /// The same, for rows that are read 16 bytes at a time.
    template <class T = Bf16>
    T* get_vectors(const char* operand, const View& view, std::int64_t rows, std::int64_t cols) const {
        constexpr std::int64_t kVector = 16 / static_cast<std::int64_t>(sizeof(T));
        T* first = get<T>(operand, view, rows, cols);
        const bool aligned = reinterpret_cast<std::uintptr_t>(first) % 16 == 0 && (rows == 1 || view.ld % kVector == 0);
        require(aligned && cols % kVector == 0, op_, ": rows of ", operand, " (", cols, " elements, ", view.ld,
                " apart) are not whole vectors of 16 bytes");
        return first;
    }

    /// Work space of at least this many bytes, aligned to 256.
    std::byte* scratch(const View& view, std::int64_t bytes) const {
        require(static_cast<bool>(view) && view.cols >= bytes, op_, ": operand scratch has ",
                view ? view.cols : std::int64_t{0}, " bytes, needs ", bytes);
        std::byte* first = memory_.address(view);
        require(reinterpret_cast<std::uintptr_t>(first) % 256 == 0, op_,
                ": operand scratch is not aligned to 256 bytes");
        return first;
    }

  private:
    const char* op_;
    const Memory& memory_;
};

}  // namespace coda::hopper
