#include "src/io/checkpoint_weights.h"

#include "kernels/core/error.h"
#include "src/io/checkpoint.h"

namespace coda {

void require_segment_size(const CheckpointInfo& checkpoint, const char* segment, std::int64_t bytes) {
    const SegmentInfo& info = checkpoint.segment(segment);
    require(info.bytes == bytes, checkpoint.folder.string(), ": segment ", segment, " has ", info.bytes,
            " bytes, this configuration needs ", bytes);
}

CheckpointWeights::CheckpointWeights(const CheckpointInfo& checkpoint, const ParameterLayout& layout)
    : layout_(layout), file_([&] {
          require_segment_size(checkpoint, kMasterSegment, layout.count * size_of(DType::f32));
          return segment_reader(checkpoint, kMasterSegment);
      }()) {}

void CheckpointWeights::read(std::int64_t first, std::span<float> out) const {
    file_.read_at(first * size_of(DType::f32), std::as_writable_bytes(out));
}

void CheckpointWeights::read_row(std::size_t tensor, std::int64_t row, std::span<float> out) const {
    read(layout_.tensors[tensor].row_offset(row), out);
}

}  // namespace coda
