// A logit in double, as TargetLogit and ExactCrossEntropy sum it on the CPU.
#pragma once

#include <cstdint>

namespace coda::cpu {

/// Σ_k a w in double, in which products of floats are exact.
template <class Storage>
double dot_product(const Storage* a, const Storage* w, std::int64_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t k = 0; k < count; ++k) sum += static_cast<double>(a[k]) * static_cast<double>(w[k]);
    return sum;
}

}  // namespace coda::cpu
