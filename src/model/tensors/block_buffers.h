// A block's own buffers: the table that they are added to, the types of their roles, and what they are called.
#pragma once

#include <string>
#include <utility>

#include "kernels/core/error.h"
#include "src/core/buffers.h"

namespace coda {

/// FP8 codes of a tensor (M, n); either may be absent.
struct CodeViews {
    View rows;     // (M, n)
    View columns;  // (n, M), the transposed copy with equal codes
};

class BlockBuffers {
  public:
    BlockBuffers(BufferTable& table, const Precision& precision, std::string prefix = {})
        : table_(table), precision_(precision), prefix_(std::move(prefix)) {}

    /// The same, with names that say the layer.
    BlockBuffers of_layer(std::size_t l) const { return {table_, precision_, prefix_ + text("layer ", l, " ")}; }

    /// Transient, of the storage type, the statistic type, and a flag per row.
    View activation(const std::string& name, std::int64_t rows, std::int64_t cols) const {
        return table_.activation(prefix_ + name, precision_.storage, rows, cols);
    }
    /// FP8 codes of (tokens, cols): by rows, transposed, and both.
    View codes_by_rows(const char* name, std::int64_t tokens, std::int64_t cols, DType format = DType::f8e4m3) const {
        return table_.activation(text(prefix_, name, " f8"), format, tokens, cols);
    }
    View transposed_codes(const char* name, std::int64_t tokens, std::int64_t cols,
                          DType format = DType::f8e4m3) const {
        View view = table_.activation(text(prefix_, name, " f8 transposed"), format, cols, tokens);
        view.order = ColumnOrder::paired;
        return view;
    }
    CodeViews codes(const char* name, std::int64_t tokens, std::int64_t cols, DType format = DType::f8e4m3) const {
        return {codes_by_rows(name, tokens, cols, format), transposed_codes(name, tokens, cols, format)};
    }
    View statistic(const std::string& name, std::int64_t rows, std::int64_t cols) const {
        return table_.activation(prefix_ + name, precision_.statistic, rows, cols);
    }
    /// A sum in the gradient's type, of one micro-batch.
    View gradient(const std::string& name, std::int64_t cols) const {
        return table_.activation(prefix_ + name, precision_.gradient, 1, cols);
    }
    View flags(const char* name, std::int64_t cols) const {
        return table_.activation(prefix_ + name, DType::i32, 1, cols);
    }

    /// Kept from one schedule to the next, and absent from a plan whose schedules do not touch it. Segment `inputs`
    /// for what the host writes or reads, `caches` for what a pass leaves to the next one, such as a KV cache.
    View persistent(const std::string& name, MemorySegment segment, DType dtype, std::int64_t rows,
                    std::int64_t cols) const {
        return table_.add(prefix_ + name, segment, Lifetime::persistent, dtype, rows, cols);
    }

    /// A counter of one i32. It is 0 when the run begins, and every op leaves it at 0.
    View counter(const char* name) const { return persistent(name, MemorySegment::activations, DType::i32, 1, 1); }

    const Precision& precision() const { return precision_; }

  private:
    BufferTable& table_;
    Precision precision_;
    std::string prefix_;
};

}  // namespace coda
