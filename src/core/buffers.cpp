#include "src/core/buffers.h"

#include "kernels/core/error.h"

namespace coda {

const char* name_of(MemorySegment segment) {
    switch (segment) {
        case MemorySegment::weights: return "weights";
        case MemorySegment::gradients: return "gradients";
        case MemorySegment::optimizer: return "optimizer state";
        case MemorySegment::inputs: return "inputs and tables";
        case MemorySegment::caches: return "caches";
        case MemorySegment::activations: return "activations";
    }
    return "?";
}

View BufferTable::add(std::string name, MemorySegment segment, Lifetime lifetime, DType dtype, std::int64_t rows,
                      std::int64_t cols) {
    const double bytes = static_cast<double>(rows) * static_cast<double>(cols) * static_cast<double>(size_of(dtype));
    require(bytes < kMostBytes, "buffer '", name, "' of ", rows, " x ", cols, " ", name_of(dtype), kTooLarge);
    View view;
    view.buffer = static_cast<BufferId>(buffers_.size());
    view.dtype = dtype;
    view.rows = rows;
    view.cols = cols;
    view.ld = cols;
    buffers_.push_back({std::move(name), segment, lifetime, view.bytes()});
    return view;
}

bool overlap(const View& a, const View& b) {
    return a.buffer == b.buffer && a.offset < b.offset + b.span_bytes() && b.offset < a.offset + a.span_bytes();
}

View part_of(const View& vector, std::int64_t first, std::int64_t number) {
    View part = vector;
    part.offset += first * size_of(vector.dtype);
    part.cols = part.ld = number;
    return part;
}

View narrowed(const View& view, std::int64_t columns) {
    View result = view;
    result.cols = result.ld = columns;
    return result;
}

}  // namespace coda
