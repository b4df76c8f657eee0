// Attention of the Hopper executor against cpu::run in double on the same bf16 operands, on a Hopper GPU.
//
// Tolerances (relative RMS). o: 4e-3. It is rounded to bf16 once (1.1e-3 to 2.2e-3), and it is a mean over
// probabilities that are rounded too, whose errors average out. Gradients: 6e-3. Both factors of every multiplication
// are rounded, and delta inherits the rounding of o. lse: 2e-3 absolute for logits of size 1 (bf16 operands, fp32 sums,
// exp2 within 2^-22); the error grows with the logits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"
#include "kernels/ops/attention/case.h"
#include "tests/hopper/harness.h"

using namespace coda;
using cases::AttentionCase;
using cases::AttentionCaseShape;
using test::Bytes;
using test::has_hopper;

namespace {

constexpr std::size_t kMatrices[] = {cases::kQkv,   cases::kO,   cases::kLse, cases::kDout, cases::kDqkv,
                                     cases::kDelta, cases::kDot, cases::kPre, cases::kRho};

double get(const Bytes& bytes, const View& view, std::int64_t row, std::int64_t column) {
    const auto& buffer = bytes[static_cast<std::size_t>(view.buffer)];
    if (view.dtype != DType::f64) return test::element(buffer, view, row, column);
    double value = 0;
    std::memcpy(&value, buffer.data() + (row * view.ld + column) * 8, sizeof value);
    return value;
}

void put(Bytes& bytes, const View& view, std::int64_t row, std::int64_t column, double number) {
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
Bytes poisoned(const AttentionCase& made) {
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

void check_forward(Problem& problem, const Device& device, double scale) {
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

void check_backward(Problem& problem, const Device& device, const AttentionBackward& op, const AttentionBackward& exact,
                    double scale) {
    const bool rope = static_cast<bool>(op.rope);
    // With logits in the hundreds the softmax is nearly one-hot, and dq, dk and dot are small differences of large
    // terms. Only the parts that do not depend on a rounded o or dS are then compared.
    const bool large = scale > 1;
    cpu::run(exact, problem.truth);
    // dq and dk vanish where a query sees a single key; their errors are then measured against dv.
    const double floor = 0.05 * problem.rms(cases::kDqkv, problem.values(), problem.end());
    INFO((op.gain ? "norm backward" : rope ? "rope backward" : "backward"));
    if (op.gain) {
        device.run(op, {cases::kDqkv, cases::kDot, cases::kDGain}, problem.gpu);
        // A sum over up to 64 rows of what may cancel, or of what is 0 where a query sees a single key.
        CHECK(problem.error(cases::kDGain, 0, problem.shape.head_dim, floor) <= (large ? 1e29 : 6e-3));
    } else if (rope) {
        device.run(op, {cases::kDqkv, cases::kDot}, problem.gpu);
    } else {
        device.run(op, {cases::kDqkv}, problem.gpu);
    }
    CHECK(problem.error(cases::kDqkv, problem.values(), problem.end()) <= 6e-3);
    const double largest = large && !rope ? 1e29 : 6e-3;
    CHECK(problem.error(cases::kDqkv, 0, problem.keys(), floor) <= largest);
    CHECK(problem.error(cases::kDqkv, problem.keys(), problem.values(), floor) <= largest);
    if (rope) CHECK(problem.error(cases::kDot, 0, problem.shape.rows()) <= (large ? 1e29 : 6e-3));
}

void check(Problem& problem, double scale = 1) {
    const AttentionCaseShape& shape = problem.shape;
    INFO("B " << shape.batch << " T " << shape.seq_len << " H " << shape.heads << " Hk " << shape.kv_heads << " hd "
              << shape.head_dim << (shape.documents ? " documents" : "") << " gap " << shape.gap << " scale " << scale);
    const Device device(problem.gpu);
    check_forward(problem, device, scale);
    check_backward(problem, device, problem.small.backward, problem.exact.backward, scale);
    check_backward(problem, device, problem.small.rope_backward, problem.exact.rope_backward, scale);
    check_backward(problem, device, problem.small.norm_backward, problem.exact.norm_backward, scale);
    CHECK(problem.gaps_untouched());
}

void check(const AttentionCaseShape& shape, double scale = 1) {
    Problem problem(shape, scale);
    check(problem, scale);
}

}  // namespace

TEST_CASE("attention agrees with the CPU", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const std::int64_t seq_len : {1, 17, 128, 129, 300, 1000, 2048})
            for (const bool documents : {false, true}) {
                const std::int64_t batch = seq_len < 2048 ? 2 : 1;
                check({batch, seq_len, 2, 2, head_dim, documents});
                check({batch, seq_len, 4, 1, head_dim, documents});
                check({1, seq_len, 8, 1, head_dim, documents});
            }
}

TEST_CASE("attention over many tiles, with groups that are no power of two", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128}) {
        check({3, 2048, 4, 2, head_dim, false});
        check({2, 1000, 6, 2, head_dim, false});
        check({1, 1000, 14, 2, head_dim, true});
    }
}

TEST_CASE("attention of more sequences than a grid has along z", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const bool documents : {false, true}) check({65535 + 3000, 2, 1, 1, 64, documents});
}

TEST_CASE("attention keeps to its rows where matrices have gaps", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const bool documents : {false, true})
            for (const std::int64_t gap : {8, 72}) check({2, 129, 4, 2, head_dim, documents, gap});
}

TEST_CASE("attention of large logits", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128}) check({1, 400, 2, 1, head_dim, false}, 10);
}

TEST_CASE("attention of one padded sequence, as in sampling", "[gpu][attention]") {
    if (!has_hopper()) return;
    // The text stands at the end of the sequence; a separator begins a new document; padding sees only itself.
    for (const std::int64_t head_dim : {64, 128})
        for (const std::int32_t padding : {0, 5, 16}) {
            std::vector<std::int32_t> starts(17, 0);
            for (std::int32_t t = padding; t < 17; ++t)
                starts[static_cast<std::size_t>(t)] = std::max(padding, t / 9 * 9);
            Problem problem({1, 17, 4, 2, head_dim, true}, 1, starts);
            check(problem);
        }
}

TEST_CASE("attention in windows, with documents and without", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const std::int64_t seq_len : {129, 1000})
            for (const std::int64_t window : {1, 2, 64, 127, 128, 129, 130, 300, 999})
                for (const std::int64_t document : {seq_len, std::int64_t{170}}) {
                    std::vector<std::int32_t> first;
                    for (std::int64_t t = 0; t < 2 * seq_len; ++t) {
                        const std::int64_t position = t % seq_len;
                        first.push_back(
                            static_cast<std::int32_t>(std::max(position / document * document, position - window + 1)));
                    }
                    INFO("window " << window << ", documents of " << document);
                    Problem problem({2, seq_len, 4, 2, head_dim, true}, 1, first);
                    check(problem);
                }
}

TEST_CASE("two runs of attention give the same bits", "[gpu][attention]") {
    if (!has_hopper()) return;
    for (const std::int64_t head_dim : {64, 128})
        for (const bool documents : {false, true}) {
            Problem problem({2, 2048, 16, 4, head_dim, documents});
            const Device device(problem.gpu);
            Bytes first, first_rope, first_norm;
            for (int run = 0; run < 4; ++run) {
                device.run(problem.small.forward, {cases::kO, cases::kLse}, problem.gpu);
                device.run(problem.small.backward, {cases::kDqkv}, problem.gpu);
                if (run == 0) first = problem.gpu;
                CHECK(problem.gpu == first);
                device.run(problem.small.rope_backward, {cases::kDqkv, cases::kDot}, problem.gpu);
                if (run == 0) first_rope = problem.gpu;
                CHECK(problem.gpu == first_rope);
                device.run(problem.small.norm_backward, {cases::kDqkv, cases::kDot, cases::kDGain}, problem.gpu);
                if (run == 0) first_norm = problem.gpu;
                CHECK(problem.gpu == first_norm);
                problem.gpu = first;
            }
        }
}

TEST_CASE("attention's kernels wait for each other", "[gpu][attention]") {
    if (!has_hopper()) return;
    // The launches follow each other without pauses, so each may begin while its predecessor finishes. What one hands
    // to the next is poison until then.
    for (const std::int64_t head_dim : {64, 128}) {
        Problem problem({2, 1000, 8, 2, head_dim, true});
        const Device device(problem.gpu);
        device.run(problem.small.forward, {cases::kO, cases::kLse}, problem.gpu);
        device.run(problem.small.backward, {cases::kDqkv}, problem.gpu);
        const Bytes first = problem.gpu;
        device.run(problem.small.norm_backward, {cases::kDqkv, cases::kDot, cases::kDGain}, problem.gpu);
        const Bytes first_norm = problem.gpu;
        const hopper::Launch forward = hopper::prepare(problem.small.forward, device.memory());
        const hopper::Launch backward = hopper::prepare(problem.small.backward, device.memory());
        const hopper::Launch norm_backward = hopper::prepare(problem.small.norm_backward, device.memory());
        for (int run = 0; run < 10; ++run) {
            device.poison({cases::kO, cases::kLse, cases::kDqkv, cases::kScratch}, problem.gpu);
            forward(nullptr);
            backward(nullptr);
            problem.gpu = first;
            device.download({cases::kO, cases::kLse, cases::kDqkv}, problem.gpu);
            CHECK(problem.gpu == first);
            device.poison({cases::kO, cases::kLse, cases::kDqkv, cases::kDot, cases::kDGain, cases::kScratch},
                          problem.gpu);
            forward(nullptr);
            norm_backward(nullptr);
            device.download({cases::kO, cases::kLse, cases::kDqkv, cases::kDot, cases::kDGain}, problem.gpu);
            CHECK(problem.gpu == first_norm);
        }
    }
}
