// --dump-batches: the token batches of a run, for a reference that must see the same data.
#pragma once

#include <cstdint>
#include <filesystem>

#include "src/io/loader.h"

namespace coda {

/// Writes a NumPy file (.npy, int32) of shape (micro-batches, 3, micro_batch_size, seq_len): tokens at [:, 0], targets
/// at [:, 1] (negative: ignored), at [:, 2] 1 where a document begins and 0 elsewhere; micro-batch after micro-batch in
/// the order of training from `first_sequence` on.
/// The file appears when it is complete. Throws Error when it cannot be written.
void dump_batches(const std::filesystem::path& file, const Loader& loader, std::int64_t first_sequence,
                  std::int64_t micro_batches, std::int64_t micro_batch_size, std::int64_t seq_len);

}  // namespace coda
