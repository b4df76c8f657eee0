// Attention of the Hopper executor against cpu::run in double on the same bf16 operands, on a Hopper GPU.
//
// Tolerances (relative RMS). o: 4e-3, as it is rounded to bf16 once (1.1e-3 to 2.2e-3) and is a mean over probabilities
// that are rounded too, whose errors average out. Gradients: 6e-3, with two rounded factors in every product and o's
// rounding in delta. lse: 2e-3 absolute for logits of size 1 (fp32 sums of bf16 products; exp2 within 2^-22).
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cpu/run.h"
#include "kernels/hopper/attention/attention.h"
#include "kernels/hopper/sm90/check.h"
#include "tests/catch.h"
#include "tools/bench/attention_case.h"

using namespace coda;
using bench::AttentionCase;
using bench::AttentionCaseShape;

namespace {

bool has_hopper() {
    int devices = 0;
    cudaDeviceProp properties{};
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0 ||
        cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
        WARN("skipped: no Hopper GPU");
        return false;
    }
    return true;
}

using Bytes = std::vector<std::vector<std::byte>>;

/// Host buffers of a case; every byte 0xff, which is NaN in all floating-point types.
Bytes poisoned(const AttentionCase& made) {
    Bytes bytes;
    for (const View& view : made.buffers) bytes.emplace_back(static_cast<std::size_t>(view.bytes()), std::byte{0xff});
    return bytes;
}

Memory memory_of(Bytes& bytes) {
    std::vector<std::byte*> bases;
    for (auto& buffer : bytes) bases.push_back(buffer.data());
    return Memory(bases);
}

double get(const Bytes& bytes, const View& view, std::int64_t index) {
    const std::byte* at = bytes[static_cast<std::size_t>(view.buffer)].data() + index * size_of(view.dtype);
    if (view.dtype == DType::bf16) {
        Bf16 value;
        std::memcpy(&value, at, sizeof value);
        return static_cast<float>(value);
    }
    if (view.dtype == DType::f32) {
        float value = 0;
        std::memcpy(&value, at, sizeof value);
        return value;
    }
    double value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
}

void put(Bytes& bytes, const View& view, std::int64_t index, double number) {
    std::byte* at = bytes[static_cast<std::size_t>(view.buffer)].data() + index * size_of(view.dtype);
    if (view.dtype == DType::bf16) {
        const Bf16 value(static_cast<float>(number));
        std::memcpy(at, &value, sizeof value);
    } else if (view.dtype == DType::f32) {
        const auto value = static_cast<float>(number);
        std::memcpy(at, &value, sizeof value);
    } else {
        std::memcpy(at, &number, sizeof number);
    }
}

void put_integer(Bytes& bytes, const View& view, std::int64_t index, std::int32_t number) {
    std::memcpy(bytes[static_cast<std::size_t>(view.buffer)].data() + index * 4, &number, 4);
}

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
    void download(std::size_t buffer, Bytes& to) const {
        CUDA_CHECK(cudaMemcpy(to[buffer].data(), addresses_[buffer], to[buffer].size(), cudaMemcpyDeviceToHost));
    }
    void poison(std::size_t buffer, std::size_t bytes) const {
        CUDA_CHECK(cudaMemset(addresses_[buffer], 0xff, bytes));
    }

  private:
    std::vector<std::byte*> addresses_;
    Memory memory_;
};

/// sqrt(Σ (got - want)² / n) / max(sqrt(Σ want² / n), floor) over columns [first, last) of a matrix; NaN counts as
/// 1e30.
double error(const Bytes& got, const View& got_view, const Bytes& want, const View& want_view, std::int64_t first,
             std::int64_t last, double floor = 0) {
    double squares = 0, wrong = 0;
    for (std::int64_t row = 0; row < want_view.rows; ++row)
        for (std::int64_t column = first; column < last; ++column) {
            const double have = get(got, got_view, row * got_view.ld + column);
            const double expected = get(want, want_view, row * want_view.ld + column);
            if (!std::isfinite(have) || !std::isfinite(expected)) return 1e30;
            squares += expected * expected;
            wrong += (have - expected) * (have - expected);
        }
    const auto count = static_cast<double>(want_view.rows * (last - first));
    return std::sqrt(wrong / count) / std::max(std::sqrt(squares / count), floor);
}

double rms(const Bytes& bytes, const View& view, std::int64_t first, std::int64_t last) {
    double squares = 0;
    for (std::int64_t row = 0; row < view.rows; ++row)
        for (std::int64_t column = first; column < last; ++column)
            squares += std::pow(get(bytes, view, row * view.ld + column), 2);
    return std::sqrt(squares / static_cast<double>(view.rows * (last - first)));
}

/// The same inputs in bf16 and in double.
void fill(const AttentionCaseShape& shape, double scale, const AttentionCase& small, Bytes& gpu,
          const AttentionCase& exact, Bytes& cpu) {
    std::minstd_rand bits(static_cast<unsigned>(shape.seq_len * 131 + shape.heads * 17 + shape.head_dim));
    std::normal_distribution<float> normal;
    for (const std::size_t buffer : {std::size_t{bench::kQkv}, std::size_t{bench::kDout}})
        for (std::int64_t i = 0; i < small.buffers[buffer].count(); ++i) {
            put(gpu, small.buffers[buffer], i, (buffer == bench::kQkv ? scale : 1) * normal(bits));
            put(cpu, exact.buffers[buffer], i, get(gpu, small.buffers[buffer], i));
        }
    for (std::int64_t i = 0; i < small.buffers[bench::kRope].count(); i += 2) {
        const float angle = static_cast<float>(bits() % 6283) / 1000;
        for (int part = 0; part < 2; ++part) {
            put(gpu, small.buffers[bench::kRope], i + part, part == 0 ? std::cos(angle) : std::sin(angle));
            put(cpu, exact.buffers[bench::kRope], i + part, get(gpu, small.buffers[bench::kRope], i + part));
        }
    }
    std::int32_t start = 0;
    for (std::int64_t m = 0; m < shape.rows(); ++m) {
        const auto position = static_cast<std::int32_t>(m % shape.seq_len);
        if (position == 0) start = 0;
        if (position > 0 && bits() % 150 == 0) start = position;
        for (Bytes* bytes : {&gpu, &cpu}) {
            put_integer(*bytes, small.buffers[bench::kDocStart], m, start);
            put_integer(*bytes, small.buffers[bench::kPositions], m,
                        static_cast<std::int32_t>(static_cast<std::uint64_t>(m) * 7919u %
                                                  static_cast<std::uint64_t>(shape.seq_len)));
        }
    }
}

void check(const AttentionCaseShape& shape, double scale = 1) {
    const AttentionCase small = bench::make_attention(shape, kMixedBf16),
                        exact = bench::make_attention(shape, kFloat64);
    Bytes gpu = poisoned(small), cpu = poisoned(exact);
    fill(shape, scale, small, gpu, exact, cpu);
    const Memory truth = memory_of(cpu);
    cpu::run(exact.forward, truth);
    const std::int64_t width = shape.heads * shape.head_dim;
    for (std::int64_t m = 0; m < shape.rows(); ++m)
        for (std::int64_t h = 0; h < shape.heads; ++h) {
            double delta = 0;
            for (std::int64_t i = m * width + h * shape.head_dim; i < m * width + (h + 1) * shape.head_dim; ++i)
                delta += get(cpu, exact.buffers[bench::kO], i) * get(cpu, exact.buffers[bench::kDout], i);
            put(cpu, exact.buffers[bench::kDelta], h * shape.rows() + m, delta);
            put(gpu, small.buffers[bench::kDelta], h * shape.rows() + m, delta);
        }

    const Device device(gpu);
    INFO("B " << shape.batch << " T " << shape.seq_len << " H " << shape.heads << " Hk " << shape.kv_heads << " hd "
              << shape.head_dim << (shape.documents ? " documents" : "") << " scale " << scale);
    hopper::prepare_op(small.forward, device.memory())(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    device.download(bench::kO, gpu);
    device.download(bench::kLse, gpu);
    CHECK(error(gpu, small.buffers[bench::kO], cpu, exact.buffers[bench::kO], 0, width) <= 4e-3);
    double largest = 0;
    for (std::int64_t i = 0; i < exact.buffers[bench::kLse].count(); ++i) {
        const double got = get(gpu, small.buffers[bench::kLse], i), want = get(cpu, exact.buffers[bench::kLse], i);
        largest = std::isfinite(got) ? std::max(largest, std::fabs(got - want)) : 1e30;
        if (largest > 1e20) break;
    }
    CHECK(largest <= 2e-3 * scale * scale);

    const std::int64_t q = width, k = q + shape.kv_heads * shape.head_dim, v = k + shape.kv_heads * shape.head_dim;
    const auto backward = [&](const Op& truth_op, const hopper::Launch& launch, bool rope) {
        cpu::run(truth_op, truth);
        device.poison(bench::kDqkv, gpu[bench::kDqkv].size());
        device.poison(bench::kScratch, gpu[bench::kScratch].size());
        launch(nullptr);
        CUDA_CHECK(cudaDeviceSynchronize());
        device.download(bench::kDqkv, gpu);
        const View &got = small.buffers[bench::kDqkv], &want = exact.buffers[bench::kDqkv];
        INFO((rope ? "rope backward" : "backward"));
        // dq and dk vanish where a query sees one key; then their errors are measured against dv.
        const double floor = 0.05 * rms(cpu, want, k, v);
        CHECK(error(gpu, got, cpu, want, 0, q, floor) <= 6e-3);
        CHECK(error(gpu, got, cpu, want, q, k, floor) <= 6e-3);
        CHECK(error(gpu, got, cpu, want, k, v) <= 6e-3);
        if (!rope) return;
        device.download(bench::kDot, gpu);
        CHECK(error(gpu, small.buffers[bench::kDot], cpu, exact.buffers[bench::kDot], 0, shape.rows()) <= 6e-3);
    };
    backward(exact.backward, hopper::prepare_op(small.backward, device.memory()), false);
    backward(exact.rope_backward, hopper::prepare_op(small.rope_backward, device.memory()), true);
}

}  // namespace

TEST_CASE("attention agrees with the CPU", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const std::int64_t seq_len : {1, 17, 128, 129, 300, 1000})
            for (const bool documents : {false, true}) {
                check({2, seq_len, 2, 2, head_dim, documents});
                check({2, seq_len, 4, 1, head_dim, documents});
                check({1, seq_len, 8, 1, head_dim, documents});
            }
}

TEST_CASE("attention over many tiles", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128}) {
        check({3, 2048, 4, 2, head_dim, false});
        check({2, 2048, 4, 4, head_dim, true});
    }
}

TEST_CASE("attention of large logits stays finite", "[gpu][attention]") {
    if (!has_hopper()) return;
    // Logits of size 100 or so: the softmax is nearly one-hot, so only the forward pass has a stable reference.
    for (const std::int64_t head_dim : {64, 128}) {
        const AttentionCaseShape shape{1, 400, 2, 1, head_dim, false};
        const AttentionCase small = bench::make_attention(shape, kMixedBf16),
                            exact = bench::make_attention(shape, kFloat64);
        Bytes gpu = poisoned(small), cpu = poisoned(exact);
        fill(shape, 10, small, gpu, exact, cpu);
        cpu::run(exact.forward, memory_of(cpu));
        const Device device(gpu);
        hopper::prepare_op(small.forward, device.memory())(nullptr);
        hopper::prepare_op(small.backward, device.memory())(nullptr);
        CUDA_CHECK(cudaDeviceSynchronize());
        device.download(bench::kO, gpu);
        device.download(bench::kDqkv, gpu);
        CHECK(error(gpu, small.buffers[bench::kO], cpu, exact.buffers[bench::kO], 0, 2 * head_dim) <= 4e-3);
        CHECK(std::isfinite(rms(gpu, small.buffers[bench::kDqkv], 0, 4 * head_dim)));
    }
}

TEST_CASE("two runs of attention give the same bits", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128}) {
        const AttentionCaseShape shape{4, 2048, 16, 4, head_dim, false};
        const AttentionCase small = bench::make_attention(shape, kMixedBf16),
                            exact = bench::make_attention(shape, kFloat64);
        Bytes gpu = poisoned(small), cpu = poisoned(exact);
        fill(shape, 1, small, gpu, exact, cpu);
        const Device device(gpu);
        const hopper::Launch forward = hopper::prepare_op(small.forward, device.memory());
        const hopper::Launch backward = hopper::prepare_op(small.backward, device.memory());
        Bytes first;
        for (int run = 0; run < 4; ++run) {
            device.poison(bench::kScratch, gpu[bench::kScratch].size());
            forward(nullptr);
            backward(nullptr);
            CUDA_CHECK(cudaDeviceSynchronize());
            for (const std::size_t buffer : {bench::kO, bench::kLse, bench::kDqkv}) device.download(buffer, gpu);
            if (run == 0) first = gpu;
            CHECK(gpu == first);
        }
    }
}
