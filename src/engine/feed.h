// Brings batches from the loader into an executor's buffers.
#pragma once

#include <cstdint>
#include <span>
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

/// first_key[t] = max(first_key[t], t - window + 1) for position t of every sequence: the first key that a token sees
/// in a window of that many keys, its own included. 0: unchanged.
void apply_window(std::int64_t window, std::int64_t seq_len, std::span<std::int32_t> first_key);

class Feed {
  public:
    Feed(Executor& executor, const HostViews& host, TokenInput& tokens, std::int64_t seq_len);

    /// Tokens, targets and positions of one micro-batch of (micro_batch_size, seq_len), and where host.doc_start is,
    /// with document_mask or in a window, the first keys that its tokens see.
    void upload(const TokenBatch& batch);

  private:
    Executor& executor_;
    HostViews host_;
    TokenInput& tokens_;
    std::int64_t seq_len_;
    std::vector<std::int32_t> positions_, doc_start_;
};

}  // namespace coda
