// A block's own buffers: the table that they are added to, the types of their roles, and what they are called.
#pragma once

#include <string>
#include <utility>

#include "kernels/core/error.h"
#include "src/core/buffers.h"

namespace coda {

class BlockBuffers {
  public:
    BlockBuffers(BufferTable& table, const Precision& precision, std::string prefix = {})
        : table_(table), precision_(precision), prefix_(std::move(prefix)) {}

    /// The same, with names that say the layer.
    BlockBuffers of_layer(std::size_t l) const { return {table_, precision_, prefix_ + text("layer ", l, " ")}; }

    /// Transient, of the storage type, FP8 and the statistic type; and a flag per row.
    View activation(const char* name, std::int64_t rows, std::int64_t cols) const {
        return table_.activation(prefix_ + name, precision_.storage, rows, cols);
    }
    /// FP8: by rows, and the transposed copy of rows that are tokens.
    View f8(const char* name, std::int64_t rows, std::int64_t cols, DType format = DType::f8e4m3) const {
        return table_.activation(prefix_ + name, format, rows, cols);
    }
    View f8_transposed(const char* name, std::int64_t tokens, std::int64_t cols, DType format = DType::f8e4m3) const {
        View view = table_.activation(prefix_ + name, format, cols, tokens);
        view.order = ColumnOrder::paired;
        return view;
    }
    View statistic(const char* name, std::int64_t rows, std::int64_t cols) const {
        return table_.activation(prefix_ + name, precision_.statistic, rows, cols);
    }
    View flags(const char* name, std::int64_t cols) const {
        return table_.activation(prefix_ + name, DType::i32, 1, cols);
    }

    /// Kept from one schedule to the next, and absent from a plan whose schedules do not touch it. Segment `inputs`
    /// for what the host writes or reads, `caches` for what a pass leaves to the next one, such as a KV cache.
    View persistent(const char* name, MemorySegment segment, DType dtype, std::int64_t rows, std::int64_t cols) const {
        return table_.add(prefix_ + name, segment, Lifetime::persistent, dtype, rows, cols);
    }

    const Precision& precision() const { return precision_; }

  private:
    BufferTable& table_;
    Precision precision_;
    std::string prefix_;
};

}  // namespace coda
