// Attention of the Hopper executor and cpu::run in double on the same bf16 operands, and the comparison of both.
//
// Tolerances (relative RMS). o: 4e-3. It is rounded to bf16 once (1.1e-3 to 2.2e-3), and it is a mean over
// probabilities that are rounded too, whose errors average out. Gradients: 6e-3. Both factors of every multiplication
// are rounded, and delta inherits the rounding of o. lse: 2e-3 absolute for logits of size 1 (bf16 operands, fp32 sums,
// exp2 within 2^-22); the error grows with the logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"
#include "kernels/ops/attention/case.h"
#include "tests/hopper/harness.h"

namespace coda::attention_comparison {

using cases::AttentionCase;
using cases::AttentionCaseShape;
using test::Bytes;

inline constexpr std::size_t kMatrices[] = {cases::kQkv,   cases::kO,   cases::kLse, cases::kDout, cases::kDqkv,
                                            cases::kDelta, cases::kDot, cases::kPre, cases::kRho,  cases::kDBias};

inline double get(const Bytes& bytes, const View& view, std::int64_t row, std::int64_t column) {
    const auto& buffer = bytes[static_cast<std::size_t>(view.buffer)];
    if (view.dtype != DType::f64) return test::element(buffer, view, row, column);
    double value = 0;
    std::memcpy(&value, buffer.data() + (row * view.ld + column) * 8, sizeof value);
    return value;
}

inline void put(Bytes& bytes, const View& view, std::int64_t row, std::int64_t column, double number) {
    std::byte* at =
        bytes[static_cast<std::size_t>(view.buffer)].data() + (row * view.ld + column) * size_of(view.dtype);
    if (view.dtype == DType::bf16) {
        const Bf16 value(static_cast<float>(number));
        std::memcpy(at, &value, sizeof value);
    } else if (view.dtype == DType::f32) {
        const auto value = static_cast<float>(number);
        std::memcpy(at, &value, sizeof value);
    } else if (view.dtype == DType::i32) {
        const auto value = static_cast<std::int32_t>(number);
        std::memcpy(at, &value, sizeof value);
    } else {
        std::memcpy(at, &number, sizeof number);
    }
}

/// Host buffers of a case; every byte 0xff, which is NaN in all floating-point types.
inline Bytes poisoned(const AttentionCase& made) {
    Bytes bytes;
    for (const View& view : made.buffers)
        bytes.emplace_back(static_cast<std::size_t>(view.rows * view.ld * size_of(view.dtype)), std::byte{0xff});
    return bytes;
}

/// The same operands twice: in bf16 for the GPU, and in double without gaps for the CPU, which computes o, lse and
/// delta.
struct Problem {
    AttentionCaseShape shape;
    AttentionCase small, exact;
    Bytes gpu, cpu;
    Memory truth;

    /// Dot products of q and k have the size scale² sqrt(head_dim). `starts` (M): doc_start; by default documents of
    /// about 150 tokens.
    explicit Problem(const AttentionCaseShape& given, double scale = 1, std::vector<std::int32_t> starts = {})
        : shape(given), small(cases::make_attention(given, kMixedBf16)) {
        AttentionCaseShape dense = given;
        dense.gap = 0;
        exact = cases::make_attention(dense, kFloat64);
        gpu = poisoned(small);
        cpu = poisoned(exact);
        truth = test::memory_of(cpu);
        std::minstd_rand bits(static_cast<unsigned>(shape.seq_len * 131 + shape.heads * 17 + shape.head_dim));
        std::normal_distribution<double> normal;
        for (const std::size_t buffer : {std::size_t{cases::kQkv}, std::size_t{cases::kDout}, std::size_t{cases::kPre}})
            fill(buffer,
                 [&](std::int64_t, std::int64_t) { return (buffer == cases::kQkv ? scale : 1) * normal(bits); });
        // Of both signs and any size: the op takes them as they are.
        fill(cases::kGain, [&](std::int64_t, std::int64_t) { return normal(bits); });
        fill(cases::kBias, [&](std::int64_t, std::int64_t) { return normal(bits); });
        fill(cases::kRho, [&](std::int64_t, std::int64_t) { return 0.5 + static_cast<double>(bits() % 1000) / 1000; });
        double angle = 0;
        fill(cases::kRope, [&](std::int64_t, std::int64_t column) {
            if (column % 2 == 0) angle = static_cast<double>(bits() % 6283) / 1000;
            return column % 2 == 0 ? std::cos(angle) : std::sin(angle);
        });
        fill(cases::kNextTile, [](std::int64_t, std::int64_t) { return 0; });
        fill(cases::kRstd, [&](std::int64_t, std::int64_t) { return 0.5 + static_cast<double>(bits() % 1000) / 1000; });
        fill(cases::kPositions, [&](std::int64_t, std::int64_t m) {
            return static_cast<double>(static_cast<std::uint64_t>(m) * 7919u %
                                       static_cast<std::uint64_t>(shape.seq_len));
        });
        if (starts.empty())
            for (std::int64_t m = 0; m < shape.rows(); ++m) {
                const auto position = static_cast<std::int32_t>(m % shape.seq_len);
                starts.push_back(position == 0 || bits() % 150 == 0 ? position : starts.back());
            }
        fill(cases::kDocStart, [&](std::int64_t, std::int64_t m) { return starts[static_cast<std::size_t>(m)]; });

        cpu::run(exact.forward, truth);
        const View &o = exact.buffers[cases::kO], &dout = exact.buffers[cases::kDout];
        fill(cases::kDelta, [&](std::int64_t head, std::int64_t m) {
            double delta = 0;
            for (std::int64_t j = head * shape.head_dim; j < (head + 1) * shape.head_dim; ++j)
                delta += get(cpu, o, m, j) * get(cpu, dout, m, j);
            return delta;
        });
    }
    Problem(const Problem&) = delete;
    Problem& operator=(const Problem&) = delete;

    /// The same values on both sides: what the GPU's type can hold.
    template <class Value>
    void fill(std::size_t buffer, const Value& value) {
        const View &ours = small.buffers[buffer], &theirs = exact.buffers[buffer];
        for (std::int64_t row = 0; row < ours.rows; ++row)
            for (std::int64_t column = 0; column < ours.cols; ++column) {
                const double number = value(row, column);
                put(gpu, ours, row, column, number);
                put(cpu, theirs, row, column, ours.dtype == DType::i32 ? number : get(gpu, ours, row, column));
            }
    }

    std::int64_t keys() const { return shape.heads * shape.head_dim; }  // first column of k in qkv
    std::int64_t values() const { return keys() + shape.kv_heads * shape.head_dim; }
    std::int64_t end() const { return values() + shape.kv_heads * shape.head_dim; }
    double rms(std::size_t buffer, std::int64_t first, std::int64_t last) const {
        double squares = 0;
        const View& view = exact.buffers[buffer];
        for (std::int64_t row = 0; row < view.rows; ++row)
            for (std::int64_t column = first; column < last; ++column) {
                const double value = get(cpu, view, row, column);
                squares += value * value;
            }
        return std::sqrt(squares / static_cast<double>(view.rows * (last - first)));
    }
    /// RMS of the GPU's error over columns [first, last), relative to the exact RMS or to `floor`, whichever is larger.
    /// A value that is not finite counts as 1e30.
    double error(std::size_t buffer, std::int64_t first, std::int64_t last, double floor = 0) const {
        double wrong = 0;
        const View &ours = small.buffers[buffer], &theirs = exact.buffers[buffer];
        for (std::int64_t row = 0; row < ours.rows; ++row)
            for (std::int64_t column = first; column < last; ++column) {
                const double off = get(gpu, ours, row, column) - get(cpu, theirs, row, column);
                if (!std::isfinite(off)) return 1e30;
                wrong += off * off;
            }
        const double size = std::max(rms(buffer, first, last), floor);
        return std::sqrt(wrong / static_cast<double>(ours.rows * (last - first))) / size;
    }
    /// Whether everything between the rows of all matrices is still poison.
    bool gaps_untouched() const {
        for (const std::size_t buffer : kMatrices) {
            const View& view = small.buffers[buffer];
            const std::int64_t item = size_of(view.dtype);
            for (std::int64_t row = 0; row < view.rows; ++row)
                for (std::int64_t at = (row * view.ld + view.cols) * item; at < (row + 1) * view.ld * item; ++at)
                    if (gpu[buffer][static_cast<std::size_t>(at)] != std::byte{0xff}) return false;
        }
        return true;
    }
};

/// The GPU's copies of a problem's buffers.
class Device {
  public:
    explicit Device(const Bytes& bytes) {
        for (const auto& buffer : bytes) {
            void* address = nullptr;
            CUDA_CHECK(cudaMalloc(&address, buffer.size()));
            addresses_.push_back(static_cast<std::byte*>(address));
            CUDA_CHECK(cudaMemcpy(address, buffer.data(), buffer.size(), cudaMemcpyHostToDevice));
        }
        memory_ = Memory(addresses_);
    }
    ~Device() {
        for (std::byte* address : addresses_) cudaFree(address);
    }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    const Memory& memory() const { return memory_; }
    void poison(std::initializer_list<std::size_t> buffers, const Bytes& sizes) const {
        for (const std::size_t buffer : buffers)
            CUDA_CHECK(cudaMemsetAsync(addresses_[buffer], 0xff, sizes[buffer].size(), nullptr));
    }
    void download(std::initializer_list<std::size_t> buffers, Bytes& to) const {
        for (const std::size_t buffer : buffers)
            CUDA_CHECK(cudaMemcpy(to[buffer].data(), addresses_[buffer], to[buffer].size(), cudaMemcpyDeviceToHost));
    }
    /// Runs an op over poisoned `results` and brings them back.
    template <class Op>
    void run(const Op& op, std::initializer_list<std::size_t> results, Bytes& to) const {
        poison(results, to);
        poison({cases::kScratch}, to);
        hopper::prepare(op, memory_)(nullptr);
        CUDA_CHECK(cudaDeviceSynchronize());
        download(results, to);
    }

  private:
    std::vector<std::byte*> addresses_;
    Memory memory_;
};

inline void check_forward(Problem& problem, const Device& device, double scale) {
    device.run(problem.small.forward, {cases::kO, cases::kLse}, problem.gpu);
    CHECK(problem.error(cases::kO, 0, problem.keys()) <= 4e-3);
    const View &lse = problem.small.buffers[cases::kLse], &exact = problem.exact.buffers[cases::kLse];
    double largest = 0;
    for (std::int64_t head = 0; head < lse.rows; ++head)
        for (std::int64_t m = 0; m < lse.cols; ++m) {
            const double off = std::fabs(get(problem.gpu, lse, head, m) - get(problem.cpu, exact, head, m));
            largest = std::isfinite(off) ? std::max(largest, off) : 1e30;
        }
    CHECK(largest <= 2e-3 * scale * scale);
}

inline void check_backward(Problem& problem, const Device& device, const AttentionBackward& op,
                           const AttentionBackward& exact, double scale) {
    const bool dots = static_cast<bool>(op.dot);
    // With logits in the hundreds the softmax is nearly one-hot, and dq, dk and dot are small differences of large
    // terms. Only the parts that do not depend on a rounded o or dS are then compared.
    const bool large = scale > 1;
    cpu::run(exact, problem.truth);
    // dq and dk vanish where a query sees a single key; their errors are then measured against dv.
    const double floor = 0.05 * problem.rms(cases::kDqkv, problem.values(), problem.end());
    INFO("backward" << (op.rope ? ", rope" : "") << (op.gain ? ", norm" : "") << (op.bias ? ", bias" : ""));
    if (op.gain) {
        device.run(op, {cases::kDqkv, cases::kDot, cases::kDGain}, problem.gpu);
        // A sum over up to 64 rows of what may cancel, or of what is 0 where a query sees a single key.
        CHECK(problem.error(cases::kDGain, 0, problem.shape.head_dim, floor) <= (large ? 1e29 : 6e-3));
    } else if (op.bias) {
        device.run(op, {cases::kDqkv, cases::kDot, cases::kDBias}, problem.gpu);
        for (const auto& [first, last] :
             {std::pair{std::int64_t{0}, problem.values()}, std::pair{problem.values(), problem.end()}})
            CHECK(problem.error(cases::kDBias, first, last, floor) <= (large ? 1e29 : 6e-3));
    } else if (dots) {
        device.run(op, {cases::kDqkv, cases::kDot}, problem.gpu);
    } else {
        device.run(op, {cases::kDqkv}, problem.gpu);
    }
    CHECK(problem.error(cases::kDqkv, problem.values(), problem.end()) <= 6e-3);
    const double largest = large && !dots ? 1e29 : 6e-3;
    CHECK(problem.error(cases::kDqkv, 0, problem.keys(), floor) <= largest);
    CHECK(problem.error(cases::kDqkv, problem.keys(), problem.values(), floor) <= largest);
    if (dots) CHECK(problem.error(cases::kDot, 0, problem.shape.rows()) <= (large ? 1e29 : 6e-3));
}

inline void check(Problem& problem, double scale = 1) {
    const AttentionCaseShape& shape = problem.shape;
    INFO("B " << shape.batch << " T " << shape.seq_len << " H " << shape.heads << " Hk " << shape.kv_heads << " hd "
              << shape.head_dim << (shape.documents ? " documents" : "") << " gap " << shape.gap << " scale " << scale);
    const Device device(problem.gpu);
    check_forward(problem, device, scale);
    check_backward(problem, device, problem.small.backward, problem.exact.backward, scale);
    check_backward(problem, device, problem.small.rope_backward, problem.exact.rope_backward, scale);
    check_backward(problem, device, problem.small.norm_backward, problem.exact.norm_backward, scale);
    check_backward(problem, device, problem.small.bias_backward, problem.exact.bias_backward, scale);
    check_backward(problem, device, problem.small.unrotated_backward, problem.exact.unrotated_backward, scale);
    CHECK(problem.gaps_untouched());
}

inline void check(const AttentionCaseShape& shape, double scale = 1) {
    Problem problem(shape, scale);
    check(problem, scale);
}

}  // namespace coda::attention_comparison
