// Brings batches from the loader into an executor's buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "src/engine/executor.h"
#include "src/engine/token_input.h"
#include "src/io/loader.h"

namespace coda {

/// Writes one value, converted to the view's dtype (f32, f64 or i32).
void upload_scalar(Executor& executor, const View& view, double value);
double download_scalar(Executor& executor, const View& view);

/// The elements of a contiguous view of floating-point numbers.
std::vector<double> download_vector(Executor& executor, const View& view);

/// Token batches as a micro-batch of (micro_batch_size, seq_len) consumes them.
struct TokenBatch {
    std::vector<std::int32_t> tokens, targets;  // (M)
    std::int64_t valid = 0;                     // targets that count
};
TokenBatch load_batch(const Loader& loader, std::int64_t first_sequence, std::int64_t sequences, std::int64_t seq_len);

class Feed {
  public:
    /// `bos`: documents begin at this token (document_mask); ignored where host.doc_start is absent.
    Feed(Executor& executor, const HostViews& host, TokenInput& tokens, std::int64_t seq_len, std::int32_t bos);

    /// Tokens, targets, positions and document starts of one micro-batch.
    void upload(const TokenBatch& batch);

  private:
    Executor& executor_;
    HostViews host_;
    TokenInput& tokens_;
    std::int64_t seq_len_;
    std::int32_t bos_;
    std::vector<std::int32_t> positions_, doc_start_;
};

}  // namespace coda
