// Attention by its definition, for any scalar type. With complex numbers its derivative is exact up to rounding
// (complex step: f'(x) = Im f(x + i h) / h for tiny h), so a test of a gradient needs no other gradient formula.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace coda::test {

struct AttentionCase {
    std::int64_t batch, seq_len, heads, kv_heads, head_dim;
    std::int64_t rows() const { return batch * seq_len; }
    std::int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

template <class Scalar>
struct AttentionResult {
    std::vector<Scalar> o;    // (M, H hd)
    std::vector<Scalar> lse;  // (H, M)
};

/// doc_start: one per row, or empty. qkv (M, Nq) contiguous.
template <class Scalar>
AttentionResult<Scalar> naive_attention(const AttentionCase& c, const std::vector<Scalar>& qkv,
                                        const std::vector<int>& doc_start) {
    const auto at = [&](std::int64_t row, std::int64_t slot, std::int64_t j) {
        return qkv[static_cast<std::size_t>(row * c.columns() + slot * c.head_dim + j)];
    };
    AttentionResult<Scalar> result;
    result.o.resize(static_cast<std::size_t>(c.rows() * c.heads * c.head_dim));
    result.lse.resize(static_cast<std::size_t>(c.heads * c.rows()));
    for (std::int64_t b = 0; b < c.batch; ++b)
        for (std::int64_t h = 0; h < c.heads; ++h)
            for (std::int64_t t = 0; t < c.seq_len; ++t) {
                const std::int64_t row = b * c.seq_len + t;
                const std::int64_t kv = h / (c.heads / c.kv_heads);
                const std::int64_t first = doc_start.empty() ? 0 : doc_start[static_cast<std::size_t>(row)];
                std::vector<Scalar> logits;
                double largest = -1e300;
                for (std::int64_t u = first; u <= t; ++u) {
                    Scalar dot = 0;
                    for (std::int64_t j = 0; j < c.head_dim; ++j)
                        dot += at(row, h, j) * at(b * c.seq_len + u, c.heads + kv, j);
                    logits.push_back(dot / std::sqrt(static_cast<double>(c.head_dim)));
                    largest = std::max(largest, std::real(logits.back()));
                }
                Scalar total = 0;
                for (Scalar& logit : logits) {
                    logit = std::exp(logit - largest);
                    total += logit;
                }
                result.lse[static_cast<std::size_t>(h * c.rows() + row)] = largest + std::log(total);
                for (std::int64_t j = 0; j < c.head_dim; ++j) {
                    Scalar sum = 0;
                    for (std::int64_t u = first; u <= t; ++u)
                        sum += logits[static_cast<std::size_t>(u - first)] / total *
                               at(b * c.seq_len + u, c.heads + c.kv_heads + kv, j);
                    result.o[static_cast<std::size_t>(row * c.heads * c.head_dim + h * c.head_dim + j)] = sum;
                }
            }
    return result;
}

/// d/dε Σ o(qkv + ε direction) ⊙ dout at ε = 0.
inline double directional_derivative(const AttentionCase& c, const std::vector<double>& qkv,
                                     const std::vector<double>& direction, const std::vector<double>& dout,
                                     const std::vector<int>& doc_start) {
    constexpr double kStep = 1e-100;
    std::vector<std::complex<double>> moved(qkv.size());
    for (std::size_t i = 0; i < qkv.size(); ++i) moved[i] = {qkv[i], kStep * direction[i]};
    const auto result = naive_attention(c, moved, doc_start);
    double sum = 0;
    for (std::size_t i = 0; i < dout.size(); ++i) sum += result.o[i].imag() / kStep * dout[i];
    return sum;
}

}  // namespace coda::test
