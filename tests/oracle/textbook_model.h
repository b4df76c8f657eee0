// The forward pass of the textbook model, written once as a template over its scalar type: double for values, Variable
// for gradients by tape, std::complex<double> for gradients by complex step.
//
// M tokens of a micro-batch (row m = b T + t), d hidden size, hd head size, H query heads, V vocabulary.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <map>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "tests/oracle/tape.h"
#include "tests/oracle/textbook.h"

namespace coda::textbook {

template <class Scalar>
using Parameters = std::map<std::string, std::vector<Scalar>>;

template <class Scalar>
struct Matrix {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::vector<Scalar> data;

    Matrix(std::int64_t rows_, std::int64_t columns_)
        : rows(rows_), columns(columns_), data(static_cast<std::size_t>(rows_ * columns_)) {}

    Scalar& operator()(std::int64_t row, std::int64_t column) { return data[index(row, column)]; }
    const Scalar& operator()(std::int64_t row, std::int64_t column) const { return data[index(row, column)]; }

    std::span<const Scalar> part(std::int64_t row, std::int64_t column, std::int64_t count) const {
        return std::span(data).subspan(index(row, column), static_cast<std::size_t>(count));
    }
    std::span<const Scalar> row(std::int64_t r) const { return part(r, 0, columns); }

  private:
    std::size_t index(std::int64_t row, std::int64_t column) const {
        return static_cast<std::size_t>(row * columns + column);
    }
};

/// The real part, for the shift that keeps exp in range. Softmax does not depend on the shift, so it is a constant.
inline double real_part(double x) { return x; }
inline double real_part(const std::complex<double>& x) { return x.real(); }
inline double real_part(const Variable& x) { return x.value(); }

template <class Scalar>
Scalar dot(std::span<const Scalar> a, std::span<const Scalar> b) {
    Scalar sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum = sum + a[i] * b[i];
    return sum;
}

template <class Scalar>
double largest(const std::vector<Scalar>& values) {
    double result = -std::numeric_limits<double>::infinity();
    for (const Scalar& value : values) result = std::max(result, real_part(value));
    return result;
}

std::int64_t head_dim(const ModelConfig& config);
std::int64_t kv_heads(const ModelConfig& config);

/// "model.layers.<layer>.<module>.weight", and the same with "bias"
std::string layer_weight(std::int64_t layer, const std::string& module);
std::string layer_bias(std::int64_t layer, const std::string& module);

/// RoPE position of every row.
std::vector<std::int64_t> positions(const Batch& batch);

/// Rows whose keys row `query` attends to: the rows of its own sequence and document, up to itself, and of these the
/// last `window` (0: all).
std::vector<std::int64_t> visible_rows(const Batch& batch, std::int64_t query, std::int64_t window);

/// The number of targets >= 0 in all micro-batches.
std::int64_t valid_targets(const std::vector<Batch>& micro_batches);

/// x Wᵀ: (M, in) and (out, in) to (M, out).
template <class Scalar>
Matrix<Scalar> linear(const Matrix<Scalar>& x, const std::vector<Scalar>& weight) {
    const std::int64_t out = static_cast<std::int64_t>(weight.size()) / x.columns;
    Matrix<Scalar> y(x.rows, out);
    for (std::int64_t m = 0; m < x.rows; ++m)
        for (std::int64_t n = 0; n < out; ++n)
            y(m, n) = dot(x.row(m), std::span(weight).subspan(static_cast<std::size_t>(n * x.columns),
                                                              static_cast<std::size_t>(x.columns)));
    return y;
}

/// x Wᵀ + b on every row.
template <class Scalar>
Matrix<Scalar> linear(const Matrix<Scalar>& x, const std::vector<Scalar>& weight, const std::vector<Scalar>& bias) {
    Matrix<Scalar> y = linear(x, weight);
    for (std::int64_t m = 0; m < y.rows; ++m)
        for (std::int64_t n = 0; n < y.columns; ++n) y(m, n) = y(m, n) + bias[static_cast<std::size_t>(n)];
    return y;
}

/// x / sqrt(mean x² + eps) * weight, row by row.
template <class Scalar>
Matrix<Scalar> rms_norm(const Matrix<Scalar>& x, const std::vector<Scalar>& weight, double eps) {
    using std::sqrt;
    Matrix<Scalar> y(x.rows, x.columns);
    for (std::int64_t m = 0; m < x.rows; ++m) {
        const Scalar mean_square = dot(x.row(m), x.row(m)) / Scalar(static_cast<double>(x.columns));
        const Scalar rms = sqrt(mean_square + Scalar(eps));
        for (std::int64_t j = 0; j < x.columns; ++j) y(m, j) = x(m, j) / rms * weight[static_cast<std::size_t>(j)];
    }
    return y;
}

template <class Scalar>
Matrix<Scalar> layer_norm(const Matrix<Scalar>& x, const std::vector<Scalar>& weight, const std::vector<Scalar>& bias,
                          double eps) {
    Matrix<Scalar> centred(x.rows, x.columns);
    for (std::int64_t m = 0; m < x.rows; ++m) {
        Scalar mean = 0.0;
        for (std::int64_t j = 0; j < x.columns; ++j) mean = mean + x(m, j) / Scalar(static_cast<double>(x.columns));
        for (std::int64_t j = 0; j < x.columns; ++j) centred(m, j) = x(m, j) - mean;
    }
    Matrix<Scalar> y = rms_norm(centred, weight, eps);
    for (std::int64_t m = 0; m < x.rows; ++m)
        for (std::int64_t j = 0; j < x.columns; ++j) y(m, j) = y(m, j) + bias[static_cast<std::size_t>(j)];
    return y;
}

/// rms_norm of every head of x (M, heads hd) by itself, hd the size of `weight`.
template <class Scalar>
Matrix<Scalar> norm_heads(const Matrix<Scalar>& x, const std::vector<Scalar>& weight, double eps) {
    const auto width = static_cast<std::int64_t>(weight.size());
    Matrix<Scalar> heads(x.rows * x.columns / width, width);  // the same elements, a head per row
    heads.data = x.data;
    Matrix<Scalar> y = x;
    y.data = rms_norm(heads, weight, eps).data;
    return y;
}

/// Rotates every head of x (M, heads hd): with u = head's first half, v = its second half, θ_i = position frequency_i:
/// (u, v) -> (u cos θ - v sin θ, v cos θ + u sin θ) factor.
template <class Scalar>
Matrix<Scalar> rotate_half(const Matrix<Scalar>& x, const std::vector<double>& frequencies,
                           const std::vector<std::int64_t>& position, double factor = 1) {
    const auto half = static_cast<std::int64_t>(frequencies.size());
    Matrix<Scalar> y(x.rows, x.columns);
    for (std::int64_t m = 0; m < x.rows; ++m)
        for (std::int64_t head = 0; head < x.columns; head += 2 * half)
            for (std::int64_t i = 0; i < half; ++i) {
                const double angle = static_cast<double>(position[static_cast<std::size_t>(m)]) *
                                     frequencies[static_cast<std::size_t>(i)];
                const Scalar cosine(factor * std::cos(angle));
                const Scalar sine(factor * std::sin(angle));
                const Scalar& u = x(m, head + i);
                const Scalar& v = x(m, head + half + i);
                y(m, head + i) = u * cosine - v * sine;
                y(m, head + half + i) = v * cosine + u * sine;
            }
    return y;
}

/// (M, Hk hd) to (M, Hk repeats hd): each head `repeats` times, one after the other.
template <class Scalar>
Matrix<Scalar> repeat_heads(const Matrix<Scalar>& x, std::int64_t repeats, std::int64_t width) {
    Matrix<Scalar> y(x.rows, x.columns * repeats);
    for (std::int64_t m = 0; m < y.rows; ++m)
        for (std::int64_t j = 0; j < y.columns; ++j) y(m, j) = x(m, j / width / repeats * width + j % width);
    return y;
}

/// softmax(q kᵀ / sqrt(hd)) v over the visible rows, head by head; q, k, v and the result are (M, H hd).
template <class Scalar>
Matrix<Scalar> attention(const Matrix<Scalar>& q, const Matrix<Scalar>& k, const Matrix<Scalar>& v, std::int64_t width,
                         const Batch& batch, std::int64_t window) {
    using std::exp;
    const Scalar scale(1 / std::sqrt(static_cast<double>(width)));
    Matrix<Scalar> o(q.rows, q.columns);
    for (std::int64_t m = 0; m < q.rows; ++m) {
        const std::vector<std::int64_t> keys = visible_rows(batch, m, window);
        for (std::int64_t head = 0; head < q.columns; head += width) {
            std::vector<Scalar> probability;
            for (const std::int64_t key : keys)
                probability.push_back(dot(q.part(m, head, width), k.part(key, head, width)) * scale);
            const Scalar shift(largest(probability));
            Scalar sum = 0.0;
            for (Scalar& p : probability) {
                p = exp(p - shift);
                sum = sum + p;
            }
            for (Scalar& p : probability) p = p / sum;
            std::vector<Scalar> column(keys.size());
            for (std::int64_t j = head; j < head + width; ++j) {
                for (std::size_t i = 0; i < keys.size(); ++i) column[i] = v(keys[i], j);
                o(m, j) = dot(std::span<const Scalar>(probability), std::span<const Scalar>(column));
            }
        }
    }
    return o;
}

template <class Scalar>
Matrix<Scalar> add(const Matrix<Scalar>& a, const Matrix<Scalar>& b) {
    Matrix<Scalar> y(a.rows, a.columns);
    for (std::size_t i = 0; i < y.data.size(); ++i) y.data[i] = a.data[i] + b.data[i];
    return y;
}

/// silu(gate) * up, silu(x) = x / (1 + exp(-x)).
template <class Scalar>
Matrix<Scalar> swiglu(const Matrix<Scalar>& gate, const Matrix<Scalar>& up) {
    using std::exp;
    Matrix<Scalar> y(gate.rows, gate.columns);
    for (std::size_t i = 0; i < y.data.size(); ++i)
        y.data[i] = gate.data[i] / (Scalar(1.0) + exp(-gate.data[i])) * up.data[i];
    return y;
}

/// The distribution of normal numbers, 1/2 + exp(-x²/2) / sqrt(2π) Σ_n x^(2n+1) / (1 3 5 ... (2n+1)), whose terms have
/// one sign. 120 of them leave out less than 2^-53 of the sum up to |x| = 9.
template <class Scalar>
Scalar normal_distribution(const Scalar& x) {
    using std::exp;
    Scalar term = x, sum = x;
    for (int n = 1; n < 120; ++n) {
        term = term * x * x / Scalar(2.0 * n + 1);
        sum = sum + term;
    }
    return Scalar(0.5) + exp(Scalar(-0.5) * x * x) * sum / Scalar(std::sqrt(2 * std::numbers::pi));
}

/// GELU: 0.5 x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))), or x times the distribution of normal numbers.
template <class Scalar>
Matrix<Scalar> gelu(const Matrix<Scalar>& x, MlpKind kind) {
    using std::exp;
    Matrix<Scalar> y(x.rows, x.columns);
    for (std::size_t i = 0; i < y.data.size(); ++i) {
        const Scalar& z = x.data[i];
        if (kind == MlpKind::gelu_exact) {
            y.data[i] = z * normal_distribution(z);
            continue;
        }
        const Scalar inner = Scalar(std::sqrt(2 / std::numbers::pi)) * (z + Scalar(0.044715) * z * z * z);
        const Scalar e = exp(Scalar(2.0) * inner);
        y.data[i] = Scalar(0.5) * z * (Scalar(1.0) + (e - Scalar(1.0)) / (e + Scalar(1.0)));
    }
    return y;
}

template <class Scalar>
Matrix<Scalar> embedding(const std::vector<int>& tokens, const std::vector<Scalar>& table, std::int64_t width) {
    Matrix<Scalar> x(static_cast<std::int64_t>(tokens.size()), width);
    for (std::int64_t m = 0; m < x.rows; ++m)
        for (std::int64_t j = 0; j < width; ++j)
            x(m, j) = table[static_cast<std::size_t>(tokens[static_cast<std::size_t>(m)] * width + j)];
    return x;
}

template <class Scalar>
Matrix<Scalar> model_logits(const ModelConfig& config, const Parameters<Scalar>& parameters, const Batch& batch) {
    const std::int64_t width = head_dim(config);
    const std::int64_t repeats = config.num_attention_heads / kv_heads(config);
    const std::vector<double> frequencies = inverse_frequencies(config);
    const std::vector<std::int64_t> position = positions(batch);

    const bool learned = config.position_embeddings == PositionEmbeddings::learned;
    Matrix<Scalar> x = embedding(batch.tokens, parameters.at("model.embed_tokens.weight"), config.hidden_size);
    if (learned) {
        const std::vector<int> rows(position.begin(), position.end());
        x = add(x, embedding(rows, parameters.at("model.embed_positions.weight"), config.hidden_size));
    }
    const auto normed = [&](const Matrix<Scalar>& row, const std::string& name) {
        const std::vector<Scalar>& weight = parameters.at(name + ".weight");
        if (config.norm == NormKind::rmsnorm) return rms_norm(row, weight, config.rms_norm_eps);
        return layer_norm(row, weight, parameters.at(name + ".bias"), config.rms_norm_eps);
    };
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        const auto weight = [&](const std::string& module) -> const std::vector<Scalar>& {
            return parameters.at(layer_weight(layer, module));
        };
        const std::string in_layer = "model.layers." + std::to_string(layer) + ".";
        const Matrix<Scalar> a = normed(x, in_layer + "input_layernorm");
        const auto projected = [&](const std::string& module, const Matrix<Scalar>& input, bool bias) {
            return bias ? linear(input, weight(module), parameters.at(layer_bias(layer, module)))
                        : linear(input, weight(module));
        };
        const auto query_or_key = [&](const std::string& name) {
            Matrix<Scalar> z = projected("self_attn." + name + "_proj", a, config.attention_bias);
            if (config.qk_norm) z = norm_heads(z, weight("self_attn." + name + "_norm"), config.rms_norm_eps);
            return learned ? z : rotate_half(z, frequencies, position, attention_factor(config));
        };
        const Matrix<Scalar> q = query_or_key("q"), k = query_or_key("k");
        const Matrix<Scalar> v = projected("self_attn.v_proj", a, config.attention_bias);
        const Matrix<Scalar> o = attention(q, repeat_heads(k, repeats, width), repeat_heads(v, repeats, width), width,
                                           batch, config.sliding_window);
        x = add(x, projected("self_attn.o_proj", o, config.attention_out_bias));

        const Matrix<Scalar> b = normed(x, in_layer + "post_attention_layernorm");
        const Matrix<Scalar> up = projected("mlp.up_proj", b, config.mlp_bias);
        const Matrix<Scalar> y =
            config.mlp == MlpKind::swiglu ? swiglu(linear(b, weight("mlp.gate_proj")), up) : gelu(up, config.mlp);
        x = add(x, projected("mlp.down_proj", y, config.mlp_bias));
    }
    const Matrix<Scalar> n = normed(x, "model.norm");
    return linear(n, parameters.at(config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight"));
}

/// Σ over valid targets of logsumexp(logits) - logits[target].
template <class Scalar>
Scalar cross_entropy_sum(const Matrix<Scalar>& logits, const std::vector<int>& targets) {
    using std::exp;
    using std::log;
    Scalar total = 0.0;
    for (std::int64_t m = 0; m < logits.rows; ++m) {
        const int target = targets[static_cast<std::size_t>(m)];
        if (target < 0) continue;
        const std::span<const Scalar> row = logits.row(m);
        const Scalar shift(largest(std::vector<Scalar>(row.begin(), row.end())));
        Scalar sum = 0.0;
        for (const Scalar& logit : row) sum = sum + exp(logit - shift);
        total = total + (log(sum) + shift - logits(m, target));
    }
    return total;
}

template <class Scalar>
Scalar model_loss(const ModelConfig& config, const Parameters<Scalar>& parameters,
                  const std::vector<Batch>& micro_batches) {
    Scalar total = 0.0;
    for (const Batch& batch : micro_batches)
        total = total + cross_entropy_sum(model_logits(config, parameters, batch), batch.targets);
    return total / Scalar(static_cast<double>(valid_targets(micro_batches)));
}

}  // namespace coda::textbook
