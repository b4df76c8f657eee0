#include "src/io/checkpoint_weights.h"

#include <cstring>

#include "kernels/core/error.h"

namespace coda {

void require_segment_size(const CheckpointInfo& checkpoint, const char* segment, std::int64_t bytes) {
    const SegmentInfo& info = checkpoint.segment(segment);
    require(info.bytes == bytes, checkpoint.folder.string(), ": segment ", segment, " has ", info.bytes,
            " bytes, this configuration needs ", bytes);
}

CheckpointWeights::CheckpointWeights(const CheckpointInfo& checkpoint, const ParameterLayout& layout)
    : layout_(layout) {
    const std::int64_t bytes = layout.count * size_of(DType::f32);
    require_segment_size(checkpoint, kMasterSegment, bytes);
    file_ = map_segment(checkpoint, kMasterSegment);
}

void CheckpointWeights::read(std::int64_t first, std::span<float> out) const {
    const auto bytes = file_.bytes().subspan(static_cast<std::size_t>(first) * sizeof(float), out.size_bytes());
    std::memcpy(out.data(), bytes.data(), bytes.size());
    read_ += static_cast<std::int64_t>(out.size());
    if (read_ < kWeightsPart) return;
    file_.give_pages_back();
    read_ = 0;
}

void CheckpointWeights::read_row(std::size_t tensor, std::int64_t row, std::span<float> out) const {
    read(layout_.tensors[tensor].row_offset(row), out);
}

}  // namespace coda
