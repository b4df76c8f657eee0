// The table of a run's buffers: sizes and names, no memory. The planner places them, an executor gives them memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/core/operand.h"

namespace coda {

/// What a buffer is for; --dry-run groups memory by it.
enum class MemorySegment : std::uint8_t {
    weights,
    gradients,
    optimizer,
    inputs,
    caches,  // what a pass leaves to the next one and is not a parameter, such as a KV cache
    activations
};
inline constexpr MemorySegment kMemorySegments[] = {MemorySegment::weights,   MemorySegment::gradients,
                                                    MemorySegment::optimizer, MemorySegment::inputs,
                                                    MemorySegment::caches,    MemorySegment::activations};
const char* name_of(MemorySegment segment);

enum class Lifetime : std::uint8_t {
    persistent,  // holds its contents from one schedule to the next; zero when the run begins. Absent from a plan
                 // whose schedules do not touch it
    transient,   // written before it is read within every schedule; memory is shared outside its first and last use
};

struct Buffer {
    std::string name;
    MemorySegment segment = MemorySegment::activations;
    Lifetime lifetime = Lifetime::transient;
    std::int64_t bytes = 0;
};

/// Sums of this many bytes do not overflow, and no memory has them.
inline constexpr double kMostBytes = 0x1p62;
inline constexpr const char* kTooLarge =
    " takes more than 2^62 bytes: use a smaller training.micro_batch_size, training.seq_len or model";

class BufferTable {
  public:
    /// A new buffer that one (rows, cols) matrix fills. Throws Error naming it where it would take kMostBytes or
    /// more.
    View add(std::string name, MemorySegment segment, Lifetime lifetime, DType dtype, std::int64_t rows,
             std::int64_t cols);

    /// A transient activation.
    View activation(std::string name, DType dtype, std::int64_t rows, std::int64_t cols) {
        return add(std::move(name), MemorySegment::activations, Lifetime::transient, dtype, rows, cols);
    }

    const std::vector<Buffer>& all() const { return buffers_; }
    const Buffer& operator[](BufferId id) const { return buffers_.at(static_cast<std::size_t>(id)); }
    std::size_t size() const { return buffers_.size(); }

  private:
    std::vector<Buffer> buffers_;
};

/// Elements [first, first + number) of a (1, n) view.
View part_of(const View& vector, std::int64_t first, std::int64_t number);

/// Whether the spans of two views have bytes in common.
bool overlap(const View& a, const View& b);

/// The buffer of a contiguous view as a matrix of fewer columns, without gaps between its rows.
View narrowed(const View& view, std::int64_t columns);

}  // namespace coda
