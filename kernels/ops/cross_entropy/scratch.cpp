#include "kernels/ops/cross_entropy/exact_scratch.h"
#include "kernels/ops/cross_entropy/op.h"

namespace coda {

std::int64_t ExactCrossEntropy::scratch_bytes() const {
    return a.dtype == DType::bf16 ? ExactScratch(a.rows, static_cast<bool>(exponentials)).bytes : 0;
}

}  // namespace coda
