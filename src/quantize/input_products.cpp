#include "src/quantize/input_products.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/error.h"
#include "src/io/int4_matrix.h"

namespace coda {

namespace {

constexpr std::int64_t kRowsTogether = 8;  // of the products, for which an input is loaded

/// The upper triangle of products (n, n) plus Σ x xᵀ of the rows of x (m, n).
void add_products(std::vector<float>& products, const std::vector<float>& x, std::int64_t n) {
    const std::int64_t m = static_cast<std::int64_t>(x.size()) / n;
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t first = 0; first < n; first += kRowsTogether) {
        const std::int64_t end = std::min(first + kRowsTogether, n);
        for (std::int64_t row = 0; row < m; ++row) {
            const float* const from = x.data() + row * n;
            for (std::int64_t i = first; i < end; ++i) {
                float* const to = products.data() + i * n;
                const float factor = from[i];
#pragma omp simd
                for (std::int64_t j = first; j < n; ++j) to[j] += factor * from[j];
            }
        }
    }
}

}  // namespace

InputProducts::InputProducts(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                             const MasterWeights& weights)
    : executor_(executor), schedules_(schedules), products_(layout.matrices.size()), norms_(layout.matrices.size()) {
    for (std::size_t i = 0; i < layout.matrices.size(); ++i) {
        const WeightMatrix& matrix = layout.matrices[i];
        if (matrix.layer < 0 || !divides_into_groups(matrix.place.cols)) continue;
        products_[i].resize(static_cast<std::size_t>(matrix.place.cols * matrix.place.cols));
        if (!matrix.norm) continue;
        const auto read = [&](const PackedTensor& place) {
            std::vector<float> values(static_cast<std::size_t>(place.count()));
            weights.read(place.offset, values);
            return values;
        };
        norms_[i].gamma = read(matrix.norm->weight);
        if (matrix.norm->bias) norms_[i].beta = read(*matrix.norm->bias);
    }
}

std::vector<float> InputProducts::input_of(const GemmTensor& input, const Norm& norm) {
    const View& view = input.view;
    require(view.ld == view.cols, "the inputs of a matrix have gaps between rows");
    std::vector<std::byte> staging;
    const std::span<const std::byte> bytes = executor_.bytes(view, staging);
    std::vector<float> x(static_cast<std::size_t>(view.count()));
    if (view.dtype == DType::bf16) {
        std::vector<Bf16> stored(x.size());
        std::memcpy(stored.data(), bytes.data(), bytes.size());
        std::copy(stored.begin(), stored.end(), x.begin());
    } else {
        require(view.dtype == DType::f32, "the inputs of a matrix are ", name_of(view.dtype));
        std::memcpy(x.data(), bytes.data(), bytes.size());
    }
    const std::vector<double> factors = row_factors(executor_, input.scalars, view.rows);
#pragma omp parallel for
    for (std::int64_t row = 0; row < view.rows; ++row) {
        const auto factor = static_cast<float>(factors[static_cast<std::size_t>(row)]);
        for (std::int64_t j = 0; j < view.cols; ++j) {
            const auto column = static_cast<std::size_t>(j);
            float& value = x[static_cast<std::size_t>(row * view.cols + j)];
            value *= factor * (norm.gamma.empty() ? 1.0F : norm.gamma[column]);
            if (!norm.beta.empty()) value += norm.beta[column];
        }
    }
    return x;
}

void InputProducts::after(Pass pass, std::size_t index, double, double) {
    const Step& step = schedules_[pass][index];
    const std::vector<GemmTensor> tensors = gemm_tensors(step, schedules_.weights);
    if (step.layer < 0 || tensors.empty()) return;
    const GemmTensor& input = tensors.front();
    const auto matrix = static_cast<std::size_t>(input.projection - schedules_.weights.projections().data());
    if (products_[matrix].empty()) return;
    add_products(products_[matrix], input_of(input, norms_[matrix]), input.view.cols);
}

}  // namespace coda
