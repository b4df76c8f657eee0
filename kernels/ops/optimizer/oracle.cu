// SumSquares, GradNorm and AdamW, checked by their formulas in op.h over the whole flat segment, in double.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/math/random.h"
#include "kernels/math/rms.h"
#include "kernels/ops/optimizer/op.h"
#include "kernels/oracle/comparison.cuh"

namespace coda::oracle {

namespace {

/// Reads one device scalar on the host.
template <class T>
T scalar(const OpCheck& check, const View& view) {
    T value{};
    CUDA_CHECK(
        cudaMemcpyAsync(&value, check.memory().at<T>(view), sizeof value, cudaMemcpyDeviceToHost, check.stream()));
    CUDA_CHECK(cudaStreamSynchronize(check.stream()));
    return value;
}

/// An element after the update, before it is stored.
struct Updated {
    double master, m, v;
};

struct Update {
    Tensor grad, master, m, v;
    double lr, correction1, correction2, clip;
    double beta1, beta2, eps, weight_decay;
    std::int64_t first;  // element of the model
    bool skip;
    std::uint64_t seed, step;

    __device__ Updated operator()(std::int64_t i) const {
        const double old_master = master[i], old_m = m[i], old_v = v[i];
        if (skip) return {old_master, old_m, old_v};
        const double g = clip * static_cast<double>(grad[i]);
        const double new_m = beta1 * old_m + (1 - beta1) * g, new_v = beta2 * old_v + (1 - beta2) * g * g;
        return {old_master * (1 - lr * weight_decay) - lr * (new_m * correction1) / (sqrt(new_v * correction2) + eps),
                new_m, new_v};
    }

    /// A moment as stored: bf16 by stochastic rounding with half `half` of the element's random bits.
    __device__ double stored(double moment, DType dtype, std::int64_t i, int half) const {
        if (dtype != DType::bf16 || skip) return moment;
        const std::uint32_t random = rounding_bits(seed, step, static_cast<std::uint64_t>(first + i)) >> (16 * half);
        const unsigned bits = stochastic_bf16(static_cast<float>(moment), random);
        return static_cast<double>(__uint_as_float(bits << 16));
    }
};

}  // namespace

template <>
void check_op(const SumSquares& op, OpCheck& check) {
    const float* grad = check.memory().at<float>(op.grad);
    const double* sums = check.memory().at<double>(op.sums);
    const std::int64_t count = op.grad.cols;
    compare(
        check, "sums", 1, op.sums.cols, [=] __device__(std::int64_t, std::int64_t i) { return sums[i]; },
        [=] __device__(std::int64_t, std::int64_t i) {
            const std::int64_t end = min((i + 1) * SumSquares::kBlock, count);
            double sum = 0;
            for (std::int64_t at = i * SumSquares::kBlock; at < end; ++at)
                sum += static_cast<double>(grad[at]) * static_cast<double>(grad[at]);
            return sum;
        });
}

template <>
void check_op(const GradNorm& op, OpCheck& check) {
    std::vector<double> sums(static_cast<std::size_t>(op.sums.cols));
    CUDA_CHECK(cudaMemcpyAsync(sums.data(), check.memory().at<double>(op.sums), sums.size() * sizeof(double),
                               cudaMemcpyDeviceToHost, check.stream()));
    CUDA_CHECK(cudaStreamSynchronize(check.stream()));
    const double norm = std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
    const double clip = op.max_norm > 0 ? std::min(1.0, op.max_norm / norm) : 1.0;
    const auto constant = [&](const char* operand, const View& view, double value) {
        compare(check, operand, 1, 1, live(check, view), [=] __device__(std::int64_t, std::int64_t) { return value; });
    };
    constant("norm", op.norm, norm);
    constant("clip", op.clip, clip);

    const std::byte* captured = check.captured("skip");
    require(captured != nullptr, "oracle: skip was not captured before the launch");
    const auto* old = reinterpret_cast<const std::int32_t*>(captured);
    const std::int32_t* skip = check.memory().at<std::int32_t>(op.skip);
    const Tensor loss = live(check, op.loss);
    const auto rounded = static_cast<float>(norm);
    const bool finite = std::isfinite(rounded), dropped = rounded > scalar<float>(check, op.drop_above);
    compare(
        check, "skip", 1, 1, [=] __device__(std::int64_t, std::int64_t) { return static_cast<float>(*skip); },
        [=] __device__(std::int64_t, std::int64_t) {
            const bool bad = (*old & GradNorm::kNonFinite) != 0 || !finite || !isfinite(loss[0]);
            return static_cast<float>((bad ? GradNorm::kNonFinite : 0) + (dropped ? GradNorm::kDropped : 0));
        });
}

template <>
void check_op(const AdamW& op, OpCheck& check) {
    const Update update{.grad = live(check, op.grad),
                        .master = overwritten(check, "master", op.master, 0),
                        .m = overwritten(check, "m", op.m, 0),
                        .v = overwritten(check, "v", op.v, 0),
                        .lr = scalar<float>(check, op.lr),
                        .correction1 = scalar<float>(check, op.correction1),
                        .correction2 = scalar<float>(check, op.correction2),
                        .clip = scalar<float>(check, op.clip),
                        .beta1 = op.beta1,
                        .beta2 = op.beta2,
                        .eps = op.eps,
                        .weight_decay = op.weight_decay,
                        .first = op.first,
                        .skip = scalar<std::int32_t>(check, op.skip) != 0,
                        .seed = op.seed,
                        .step = static_cast<std::uint64_t>(scalar<std::int32_t>(check, op.step))};
    const std::int64_t count = op.grad.cols;
    const Tensor master = live(check, op.master);
    compare(check, "master", 1, count, master,
            [=] __device__(std::int64_t, std::int64_t i) { return update(i).master; });
    const DType m = op.m.dtype, v = op.v.dtype;
    compare(check, "m", 1, count, live(check, op.m),
            [=] __device__(std::int64_t, std::int64_t i) { return update.stored(update(i).m, m, i, 0); });
    compare(check, "v", 1, count, live(check, op.v),
            [=] __device__(std::int64_t, std::int64_t i) { return update.stored(update(i).v, v, i, 1); });
    // The working copy is round(master ⊙ norm_factor(gamma)) of the master that this op wrote. After a
    // skipped update there is nothing to compare it with.
    if (update.skip || !op.working) return;
    const Tensor working = live(check, op.working);
    const bool rounds = op.working.dtype == DType::bf16;
    const float* norms = op.norms ? check.memory().at<float>(op.norms) : nullptr;
    // Elements [begin, end) of the model, where they are among these, as a run of a matrix's rows.
    const auto compare_run = [&](std::int64_t begin, std::int64_t end, const NormFold* fold) {
        const std::int64_t from = max(begin, op.first) - op.first, to = min(end, op.first + count) - op.first;
        if (from >= to) return;
        const std::int64_t start = fold ? op.first + from - fold->first : 0, cols = fold ? fold->cols : 1;
        const float* gamma = fold ? norms + (fold->gamma - op.first_norm) : nullptr;
        compare(
            check, "working", 1, to - from, [=] __device__(std::int64_t, std::int64_t i) { return working[from + i]; },
            [=] __device__(std::int64_t, std::int64_t i) {
                const float factor = gamma ? norm_factor(gamma[(start + i) % cols]) : 1.0f;
                const float value = master[from + i] * factor;
                return rounds ? __bfloat162float(__float2bfloat16(value)) : value;
            });
    };
    std::int64_t next = op.first;
    for (const NormFold& fold : op.folds) {
        compare_run(next, fold.first, nullptr);
        compare_run(fold.first, fold.end(), &fold);
        next = max(next, fold.end());
    }
    compare_run(next, op.first + count, nullptr);
}

}  // namespace coda::oracle
