// AttentionBackward, checked by its formula in op.h: for each query head, bands of queries against all keys up to the
// band's last query, with whole P and dS in fp32. dk and dv add up over the bands and the query heads of a key/value
// head.
#include <algorithm>
#include <cmath>

#include "kernels/math/rope.h"
#include "kernels/ops/attention/op.h"
#include "kernels/ops/attention/oracle_heads.cuh"
#include "kernels/oracle/f8_copies.cuh"

namespace coda::oracle {

namespace {

using hopper::Major;

/// Below this share of delta, dout v - delta counts as rounding: fp32 sums are good to 2^-17 of it after the tolerance.
constexpr float kRounding = 0x1p-10f;

/// The fp32 arrays of a check: (T, hd) of a key/value head, (queries, hd) of a query head's band, (queries, keys) of
/// the band, and arrays with one value per query or key.
struct Arrays {
    float *keys, *values, *dkeys, *dvalues;
    float *query, *dout, *dquery;
    float *probabilities, *dscores;  // before dscores_of: q k and dout v
    float *delta, *query_square, *dquery_terms;
    float *key_square, *dkey_terms;
    float* sums = nullptr;  // (tiles of a sequence, hd): of dgain or dbias, with gain or bias

    Arrays(const AttentionBackward& op, const WorkSpace& space, std::int64_t queries) {
        const std::int64_t seq_len = op.seq_len, width = op.head_dim;
        Pieces pieces(space);
        for (float** whole : {&keys, &values, &dkeys, &dvalues}) *whole = pieces.floats(seq_len * width);
        if (op.gain || op.bias) sums = pieces.floats(seq_len * width);
        for (float** band : {&query, &dout, &dquery}) *band = pieces.floats(queries * width);
        for (float** square : {&probabilities, &dscores}) *square = pieces.floats(queries * seq_len);
        for (float** vector : {&delta, &query_square, &dquery_terms}) *vector = pieces.floats(queries);
        for (float** vector : {&key_square, &dkey_terms}) *vector = pieces.floats(seq_len);
    }
};

/// delta of a band's queries: Σ_head o ⊙ dout, or as given.
void delta_of(const Sequence<AttentionBackward>& sequence, std::int64_t h, const Band& band, float* delta) {
    const AttentionBackward& op = sequence.op;
    if (op.delta) {
        const Tensor given = sequence.statistic(op.delta, h, band.first);
        for_each(sequence.check, 1, band.rows,
                 [=] __device__(std::int64_t, std::int64_t row) { delta[row] = given[row]; });
        return;
    }
    const Tensor o = sequence.head(op.o, h, band.first), dout = sequence.head(op.dout, h, band.first);
    const std::int64_t width = op.head_dim;
    for_each(sequence.check, 1, band.rows, [=] __device__(std::int64_t, std::int64_t row) {
        double sum = 0;
        for (std::int64_t j = 0; j < width; ++j) sum += static_cast<double>(o(row, j)) * dout(row, j);
        delta[row] = static_cast<float>(sum);
    });
}

/// Turns q k and dout v, in place, into p = exp(q k scale - lse) and ds = p (dout v - delta) scale; 0 at masked keys.
void dscores_of(const Sequence<AttentionBackward>& sequence, std::int64_t h, const Band& band, std::int64_t keys,
                const Arrays& arrays) {
    const Mask visible = mask_of(sequence, band.first);
    const Tensor lse = sequence.statistic(sequence.op.lse, h, band.first);
    const float scale = sequence.scale();
    float *probabilities = arrays.probabilities, *dscores = arrays.dscores;
    const float* delta = arrays.delta;
    for_each(sequence.check, band.rows, keys, [=] __device__(std::int64_t row, std::int64_t key) {
        const std::int64_t i = row * keys + key;
        const float p = visible(row, key) ? expf(probabilities[i] * scale - lse[row]) : 0.0f;
        probabilities[i] = p;
        dscores[i] = visible(row, key) ? p * (dscores[i] - delta[row]) * scale : 0.0f;
    });
}

/// squares (rows) = |row|² of a (rows, width) array.
void square_rows(const OpCheck& check, const float* values, std::int64_t rows, std::int64_t width, float* squares) {
    for_each(check, 1, rows, [=] __device__(std::int64_t, std::int64_t row) {
        float sum = 0;
        for (std::int64_t j = 0; j < width; ++j) sum += values[row * width + j] * values[row * width + j];
        squares[row] = sum;
    });
}

/// Squares the elements of dS, for the terms of dq and dk, and adds to each the square of its rounding error.
void square_dscores(const Sequence<AttentionBackward>& sequence, const Band& band, std::int64_t keys,
                    const Arrays& arrays) {
    const float rounding = kRounding * sequence.scale();
    const float *probabilities = arrays.probabilities, *delta = arrays.delta;
    float* dscores = arrays.dscores;
    for_each(sequence.check, band.rows, keys, [=] __device__(std::int64_t row, std::int64_t key) {
        const std::int64_t i = row * keys + key;
        const float least = rounding * probabilities[i] * delta[row];
        dscores[i] = dscores[i] * dscores[i] + least * least;
    });
}

/// Adds the terms of a gradient of `rows` rows: |dq|² of a row would be Σ_key dS² |k|² if its terms did not cancel.
void add_terms(OpCheck& check, const char* operand, const float* squares, std::int64_t rows, std::int64_t width) {
    const auto term = [=] __device__(std::int64_t, std::int64_t row) {
        return sqrt(static_cast<double>(squares[row]));
    };
    const Sums total = sums_over(check, 1, rows, term, term);
    check.add_terms(operand, total.expected, total.largest_expected / std::sqrt(static_cast<double>(width)));
}

/// What the op wrote of dqkv: storage, or codes by rows and the scale that they have.
struct Written {
    Tensor rows;
    float inverse_scale = 1, largest = INFINITY;
    __device__ float operator()(std::int64_t row, std::int64_t column) const {
        return rows(row, column) * inverse_scale;
    }
    /// What is expected of a value that is compared without the factor `unit`: codes end at the largest number.
    __device__ double limited(double expected, double unit) const {
        const double limit = largest / fabs(unit);
        return fmin(fmax(expected, -limit), limit);
    }
};

/// Rows of a head slot from `first` on.
Written written(const Sequence<AttentionBackward>& sequence, std::int64_t slot, std::int64_t first) {
    const Result& dqkv = sequence.op.dqkv;
    if (!dqkv.codes) return {sequence.head(dqkv, slot, first)};
    const float inverse = 1 / scalar_of(sequence.check.memory().address(dqkv.codes.scale));
    const float largest = with_f8(dqkv.codes.rows.dtype, []<class F8>(F8) { return F8::largest(); });
    return {sequence.head(dqkv.codes.rows, slot, first), inverse, inverse * largest};
}

/// With codes, raises `largest` to the largest magnitude of exact(row, column).
template <class Exact>
void find_largest(const Sequence<AttentionBackward>& sequence, std::int64_t rows, double& largest, const Exact& exact) {
    if (!sequence.op.dqkv.codes) return;
    const Sums sums = sums_over(sequence.check, rows, sequence.op.head_dim, exact, exact);
    largest = std::max(largest, sums.largest_expected);
}

/// Compares a finished gradient of a q or k head that had a norm and its share of dot, and adds the band's share of its
/// dgain. Everything is compared without the factors rstd and rho, as are the terms against which gradients are
/// measured.
void compare_normed(const Sequence<AttentionBackward>& sequence, const char* operand, std::int64_t slot,
                    const Band& band, float* gradient, float* dgain, double& largest) {
    const AttentionBackward& op = sequence.op;
    OpCheck& check = sequence.check;
    const std::int64_t width = op.head_dim;
    const Tensor rope = live(check, op.rope), gain = live(check, op.gain, slot < op.heads ? 0 : 1);
    const Tensor pre = sequence.head(op.pre, slot, band.first), rho = sequence.statistic(op.rho, slot, band.first);
    const Written stored = written(sequence, slot, band.first);
    const Tensor dot = sequence.statistic(op.dot, slot, band.first);
    const std::int32_t* positions = check.memory().at<std::int32_t>(op.positions) + sequence.start + band.first;
    const RowFactor rstd = row_factor(op.rstd, check, sequence.start + band.first);
    for_each(check, band.rows, width / 2, [=] __device__(std::int64_t row, std::int64_t pair) {
        float* at = gradient + row * width + 2 * pair;
        const Pair<float> turned = unrotate_pair(Pair<float>{at[0], at[1]}, rope(positions[row], 2 * pair),
                                                 rope(positions[row], 2 * pair + 1));
        at[0] = turned.first;
        at[1] = turned.second;
    });
    const Tensor dn = band_of(gradient, width);
    const auto normed = [=] __device__(std::int64_t row, std::int64_t column) { return rho[row] * pre(row, column); };
    const auto whole = [=] __device__(std::int64_t row) {  // hd c
        double sum = 0;
        for (std::int64_t j = 0; j < width; ++j) sum += static_cast<double>(gain[j]) * normed(row, j) * dn(row, j);
        return sum;
    };
    const auto exact = [=] __device__(std::int64_t row, std::int64_t column) {
        return gain[column] * dn(row, column) - whole(row) / width * normed(row, column);
    };
    compare(
        check, operand, band.rows, width,
        [=] __device__(std::int64_t row, std::int64_t column) { return stored(row, column) / (rstd[row] * rho[row]); },
        [=] __device__(std::int64_t row, std::int64_t column) {
            return stored.limited(exact(row, column), rstd[row] * rho[row]);
        });
    find_largest(sequence, band.rows, largest, [=] __device__(std::int64_t row, std::int64_t column) {
        return exact(row, column) * rstd[row] * rho[row];
    });
    const double eps = op.eps;
    compare(
        check, "dot", 1, band.rows,
        [=] __device__(std::int64_t, std::int64_t row) { return dot[row] / (eps * rho[row] * rho[row] * rstd[row]); },
        [=] __device__(std::int64_t, std::int64_t row) { return whole(row); });
    const std::int64_t first = band.first, rows = band.rows;
    for_each(check, 1, width, [=] __device__(std::int64_t, std::int64_t column) {
        for (std::int64_t row = 0; row < rows; ++row)
            dgain[(first + row) / AttentionBackward::kSumRows * width + column] +=
                dn(row, column) * normed(row, column);
    });
}

/// Compares a finished gradient of a head slot and its share of dot, where the op has it. With bias, adds the band's
/// share of its dbias.
void compare_gradient(const Sequence<AttentionBackward>& sequence, const char* operand, std::int64_t slot,
                      const Band& band, const float* gradient, float* dbias, double& largest) {
    const AttentionBackward& op = sequence.op;
    OpCheck& check = sequence.check;
    const std::int64_t width = op.head_dim;
    if (!op.dot) {
        const Written stored = written(sequence, slot, band.first);
        const Tensor exact = band_of(gradient, width);
        compare(check, operand, band.rows, width, stored, [=] __device__(std::int64_t row, std::int64_t column) {
            return stored.limited(exact(row, column), 1);
        });
        find_largest(sequence, band.rows, largest, exact);
        return;
    }
    const Tensor turned = band_of(gradient, width), rope = live(check, op.rope);
    const bool rotated = op.rope && slot < op.heads + op.kv_heads;
    const std::int32_t* positions =
        rotated ? check.memory().at<std::int32_t>(op.positions) + sequence.start + band.first : nullptr;
    // Compared without rstd, as are the terms against which gradients are measured.
    const float* rstd = op.rstd ? check.memory().at<float>(op.rstd) + sequence.start + band.first : nullptr;
    const auto over_rstd = [=] __device__(float found, std::int64_t row) {
        return rstd == nullptr ? found : found / rstd[row];
    };
    const Written stored = written(sequence, slot, band.first);
    const Tensor dot = sequence.statistic(op.dot, slot, band.first);
    const auto finished = [=] __device__(std::int64_t row, std::int64_t column) {
        if (!rotated) return turned(row, column);
        const std::int64_t even = column / 2 * 2, angle = positions[row];
        const Pair<float> pair = unrotate_pair(Pair<float>{turned(row, even), turned(row, even + 1)}, rope(angle, even),
                                               rope(angle, even + 1));
        return column == even ? pair.first : pair.second;
    };
    compare(
        check, operand, band.rows, width,
        [=] __device__(std::int64_t row, std::int64_t column) { return over_rstd(stored(row, column), row); },
        [=] __device__(std::int64_t row, std::int64_t column) {
            return stored.limited(finished(row, column), rstd == nullptr ? 1 : rstd[row]);
        });
    find_largest(sequence, band.rows, largest, [=] __device__(std::int64_t row, std::int64_t column) {
        return finished(row, column) * (rstd == nullptr ? 1 : rstd[row]);
    });
    const Tensor value = sequence.head(op.qkv, slot, band.first);
    const float* bias = op.bias ? check.memory().at<float>(op.bias) + slot * width : nullptr;
    compare(
        check, "dot", 1, band.rows, [=] __device__(std::int64_t, std::int64_t row) { return over_rstd(dot[row], row); },
        [=] __device__(std::int64_t, std::int64_t row) {
            double sum = 0;
            for (std::int64_t j = 0; j < width; ++j) {
                sum += static_cast<double>(value(row, j)) * turned(row, j);
                if (bias != nullptr) sum -= static_cast<double>(bias[j]) * finished(row, j);
            }
            return sum;
        });
    if (bias == nullptr) return;
    const std::int64_t first = band.first, rows = band.rows;
    for_each(check, 1, width, [=] __device__(std::int64_t, std::int64_t column) {
        for (std::int64_t row = 0; row < rows; ++row)
            dbias[(first + row) / AttentionBackward::kSumRows * width + column] += finished(row, column);
    });
}

}  // namespace

template <>
void check_op(const AttentionBackward& op, OpCheck& check) {
    const std::int64_t width = op.head_dim, whole = op.seq_len * width;
    const std::vector<Band> cut = query_bands(op, check.space(), {op.gain || op.bias ? 5 : 4, 3, 2, 2, 3});
    const Arrays arrays(op, check.space(), cut.front().rows);

    const auto zero = [&](float* sums, std::int64_t count) {
        CUDA_CHECK(cudaMemsetAsync(sums, 0, static_cast<std::size_t>(count) * sizeof(float), check.stream()));
    };
    double largest = 0;
    // A band of a head: the partials of dgain or dbias are compared after the last band.
    const auto compare_band = [&](const Sequence<AttentionBackward>& sequence, const char* operand, std::int64_t slot,
                                  const Band& band, float* gradient) {
        const bool normed = op.gain && slot < op.heads + op.kv_heads;
        if (arrays.sums != nullptr && band.first == 0) zero(arrays.sums, whole);
        if (normed) {
            compare_normed(sequence, operand, slot, band, gradient, arrays.sums, largest);
        } else {
            compare_gradient(sequence, operand, slot, band, gradient, arrays.sums, largest);
        }
        if (band.first + band.rows < op.seq_len) return;
        const std::int64_t tiles = op.sum_tiles(op.seq_len, op.seq_len), b = sequence.start / op.seq_len;
        if (normed) {
            const std::int64_t partial = (slot * (op.qkv.rows / op.seq_len) + b) * tiles;
            compare(check, "dgain", tiles, width, live(check, op.dgain, partial), band_of(arrays.sums, width));
        } else if (op.bias) {
            Tensor stored = live(check, op.dbias, b * tiles);
            stored.data = static_cast<const float*>(stored.data) + slot * width;
            compare(check, "dbias", tiles, width, stored, band_of(arrays.sums, width));
        }
    };
    const auto query_head = [&](const Sequence<AttentionBackward>& sequence, std::int64_t h, const Band& band) {
        const std::int64_t rows = band.rows, seen = band.first + rows;
        sequence.widen(op.qkv, h, band.first, rows, arrays.query);
        sequence.widen(op.dout, h, band.first, rows, arrays.dout);
        delta_of(sequence, h, band, arrays.delta);
        multiply(check, arrays.query, Major::k, arrays.keys, Major::k, rows, seen, width, arrays.probabilities);
        multiply(check, arrays.dout, Major::k, arrays.values, Major::k, rows, seen, width, arrays.dscores);
        dscores_of(sequence, h, band, seen, arrays);
        multiply(check, arrays.dscores, Major::k, arrays.keys, Major::mn, rows, width, seen, arrays.dquery);
        multiply(check, arrays.dscores, Major::mn, arrays.query, Major::mn, seen, width, rows, arrays.dkeys,
                 Beta::accumulate);
        multiply(check, arrays.probabilities, Major::mn, arrays.dout, Major::mn, seen, width, rows, arrays.dvalues,
                 Beta::accumulate);
        compare_band(sequence, "dq", h, band, arrays.dquery);

        square_rows(check, arrays.query, rows, width, arrays.query_square);
        square_dscores(sequence, band, seen, arrays);
        multiply(check, arrays.dscores, Major::k, arrays.key_square, Major::k, rows, 1, seen, arrays.dquery_terms);
        multiply(check, arrays.dscores, Major::mn, arrays.query_square, Major::k, seen, 1, rows, arrays.dkey_terms,
                 Beta::accumulate);
        add_terms(check, "dq", arrays.dquery_terms, rows, width);
    };
    for (std::int64_t start = 0; start < op.qkv.rows; start += op.seq_len) {
        const Sequence<AttentionBackward> sequence{op, check, start};
        for (std::int64_t kv_head = 0; kv_head < op.kv_heads; ++kv_head) {
            const std::int64_t key_slot = sequence.key_slot(kv_head), value_slot = sequence.value_slot(kv_head);
            sequence.widen(op.qkv, key_slot, 0, op.seq_len, arrays.keys);
            sequence.widen(op.qkv, value_slot, 0, op.seq_len, arrays.values);
            square_rows(check, arrays.keys, op.seq_len, width, arrays.key_square);
            zero(arrays.dkeys, whole);
            zero(arrays.dvalues, whole);
            zero(arrays.dkey_terms, op.seq_len);
            for (std::int64_t h = kv_head * sequence.group(); h < (kv_head + 1) * sequence.group(); ++h)
                for (const Band& band : cut) query_head(sequence, h, band);
            compare_band(sequence, "dk", key_slot, {0, op.seq_len}, arrays.dkeys);
            compare_band(sequence, "dv", value_slot, {0, op.seq_len}, arrays.dvalues);
            add_terms(check, "dk", arrays.dkey_terms, op.seq_len, width);
        }
    }
    const Rounded& codes = op.dqkv.codes;
    if (!codes) return;
    compare(check, "dqkv_t", codes.rows.rows, codes.rows.cols, Untransposed{live(check, codes.columns), 0},
            live(check, codes.rows));
    compare_amax(check, "dqkv_amax", codes.amax, largest);
}

}  // namespace coda::oracle
