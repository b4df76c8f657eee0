#include "kernels/ops/optimizer/norm_fold.h"

#include "kernels/core/error.h"

namespace coda {

void require_folds(const AdamW& op) {
    std::int64_t free = 0;
    for (const NormFold& fold : op.folds) {
        require(fold.rows >= 1 && fold.cols >= 1 && fold.first >= free && fold.end() <= op.decayed, op.name,
                ": the folded matrix (", fold.rows, ", ", fold.cols, ") at element ", fold.first,
                " does not lie in the decayed elements [0, ", op.decayed, ") after the one before it");
        require(fold.gamma >= op.decayed && fold.gamma + fold.cols <= op.grad.cols, op.name, ": the norm's weight at ",
                fold.gamma, " for the folded matrix at ", fold.first, " does not lie in the undecayed elements [",
                op.decayed, ", ", op.grad.cols, ")");
        free = fold.end();
    }
}

}  // namespace coda
