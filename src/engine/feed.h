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

class Feed {
  public:
    Feed(Executor& executor, const HostViews& host, TokenInput& tokens, std::int64_t seq_len);

    /// Tokens, targets and positions of one micro-batch of (micro_batch_size, seq_len), and where host.doc_start is,
    /// with document_mask, its document starts.
    void upload(const TokenBatch& batch);

  private:
    Executor& executor_;
    HostViews host_;
    TokenInput& tokens_;
    std::int64_t seq_len_;
    std::vector<std::int32_t> positions_, doc_start_;
};

}  // namespace coda
