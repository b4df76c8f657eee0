#include "kernels/ops/optimizer/norm_fold.h"

#include "kernels/core/error.h"

namespace coda {

void require_parts(const AdamW& op) {
    require(op.first >= 0 && op.first % 4 == 0, op.name, ": its first element is number ", op.first,
            " of the model, which is no multiple of 4");
    const std::int64_t norms = op.first_norm, end = norms + (op.norms ? op.norms.cols : 0);
    std::int64_t free = 0;
    for (const NormFold& fold : op.folds) {
        require(fold.rows >= 1 && fold.cols >= 1 && fold.first >= free, op.name, ": the folded matrix (", fold.rows,
                ", ", fold.cols, ") at element ", fold.first, " does not lie after the one before it, which ends at ",
                free);
        require(fold.gamma >= norms && fold.gamma + fold.cols <= end, op.name, ": the norm's weight at ", fold.gamma,
                " for the folded matrix at ", fold.first, " does not lie in the elements of norms, [", norms, ", ", end,
                ")");
        free = fold.end();
    }
}

}  // namespace coda
