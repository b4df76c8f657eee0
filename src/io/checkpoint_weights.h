// The master weights of a checkpoint, read where they lie on disk.
#pragma once

#include "src/io/files.h"
#include "src/model/master_weights.h"

namespace coda {

struct CheckpointInfo;

/// The checkpoint's segment of master weights.
inline constexpr const char* kMasterSegment = "master";

/// Throws Error naming folder, segment and both sizes when the checkpoint does not have `bytes` bytes of it.
void require_segment_size(const CheckpointInfo& checkpoint, const char* segment, std::int64_t bytes);

class CheckpointWeights : public MasterWeights {
  public:
    /// `layout` must outlive it; the checkpoint's contents have been verified. Throws as require_segment_size.
    CheckpointWeights(const CheckpointInfo& checkpoint, const ParameterLayout& layout);

    void read(std::int64_t first, std::span<float> out) const override;
    void read_row(std::size_t tensor, std::int64_t row, std::span<float> out) const override;

  private:
    const ParameterLayout& layout_;
    FileReader file_;
};

}  // namespace coda
