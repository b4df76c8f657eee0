// Makes the working copy of flat parameters, in which matrices carry the weight of the norm before them (NormFold).
// Host.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/math/rms.h"
#include "kernels/ops/optimizer/op.h"

namespace coda {

/// Throws Error unless the op begins at a multiple of four elements, its folds are in order and do not overlap, and
/// their norms' weights lie in the operand `norms`.
void require_parts(const AdamW& op);

/// Elements of the flat parameters from `first` on, which include the weights of norms.
template <class Master>
struct NormWeights {
    const Master* values;
    std::int64_t first;

    Master operator[](std::int64_t element) const { return values[element - first]; }
};

/// working[i] = round(master[i]), in a folded matrix round(master[i] norm_factor(gamma of its column)). `master` and
/// `working` point to `count` elements, from element `first` of the parameters on.
template <class Master, class Working>
void fill_working(const std::vector<NormFold>& folds, const NormWeights<Master>& norms, std::int64_t first,
                  std::int64_t count, const Master* master, Working* working) {
    const auto round = [](Master value) {
        if constexpr (std::is_same_v<Working, Bf16>)
            return Bf16(static_cast<float>(value));
        else
            return static_cast<Working>(value);
    };
    std::int64_t i = 0;
    const auto plain_until = [&](std::int64_t end) {
        for (; i < end; ++i) working[i] = round(master[i]);
    };
    auto fold =
        std::partition_point(folds.begin(), folds.end(), [&](const NormFold& each) { return each.end() <= first; });
    for (; fold != folds.end() && fold->first < first + count; ++fold) {
        plain_until(fold->first - first);
        const std::int64_t end = std::min(fold->end() - first, count);
        while (i < end) {
            const std::int64_t column = (first + i - fold->first) % fold->cols;
            const std::int64_t run = std::min(fold->cols - column, end - i);
            for (std::int64_t j = 0; j < run; ++j, ++i)
                working[i] = round(master[i] * norm_factor(norms[fold->gamma + column + j]));
        }
    }
    plain_until(count);
}

}  // namespace coda
