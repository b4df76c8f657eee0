// The terms of ColumnSum for all elements of a GEMM, from norms of its operands. Device.
#pragma once

#include <cmath>

#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

/// The norms of the first `count` rows of `matrix`, or with `of_columns` of its columns, over `k` elements; in double,
/// one thread per norm.
inline void write_norms(const OpCheck& check, const Tensor& matrix, bool of_columns, std::int64_t count, std::int64_t k,
                        float* norms) {
    for_each(check, 1, count, [=] __device__(std::int64_t, std::int64_t which) {
        double squares = 0;
        for (std::int64_t i = 0; i < k; ++i) {
            const auto value = static_cast<double>(of_columns ? matrix(i, which) : matrix(which, i));
            squares += value * value;
        }
        norms[which] = static_cast<float>(sqrt(squares));
    });
}

/// |a_m| |b_n| / sqrt(K) for a GEMM of a (M, K) and b: (N, K) where it is K-major, (K, N) where it is MN-major.
class TermSizes {
  public:
    struct Rows {
        const float *of_a, *of_b;
        double factor;

        __device__ double operator()(std::int64_t row, std::int64_t column) const {
            return factor * static_cast<double>(of_a[row]) * static_cast<double>(of_b[column]);
        }
    };

    TermSizes(const OpCheck& check, const View& a, const View& b, hopper::Major major_b)
        : rows_(a.rows),
          k_(a.cols),
          norms_(WorkSpace::allocate((a.rows + b.rows + b.cols - k_) * size_of(DType::f32))) {
        write_norms(check, live(check, a), false, rows_, k_, norms());
        write_norms(check, live(check, b), major_b == hopper::Major::mn, b.rows + b.cols - k_, k_, norms() + rows_);
    }
    /// With the GEMM's row `first` as row 0.
    Rows from(std::int64_t first) const {
        return {norms() + first, norms() + rows_, 1 / std::sqrt(static_cast<double>(k_))};
    }

  private:
    float* norms() const { return reinterpret_cast<float*>(norms_.get()); }

    std::int64_t rows_, k_;
    WorkSpace::DeviceMemory norms_;
};

}  // namespace coda::oracle
