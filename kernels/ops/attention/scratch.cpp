#include "kernels/ops/attention/scratch.h"

namespace coda {

std::int64_t AttentionBackward::scratch_bytes() const {
    return qkv.dtype == DType::bf16 ? AttentionScratch(*this).bytes : 0;
}

}  // namespace coda
