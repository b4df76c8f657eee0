// FinishCrossEntropy's flags and ExactCrossEntropy on the GPU against cpu::run. The two sum logits and softmax in
// another order, and hand the rounding of bf16 on from one element to the next in another order. Each stores one of the
// two bf16 numbers around its own q, so elements may be two steps apart; the sum of a row's elements must not be.
#include "kernels/core/integers.h"
#include "tests/hopper/pointwise_check.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr std::int64_t kRowsWithDot = 3, kMostForDot = 1 << 20;  // the host computes their logits

struct Shape {
    std::int64_t rows, width, vocab, padded;
    double size, offset;  // of the logits: their spread, and what all of a row's have in common
    bool rstd = true;
};

/// Operands with the flags as given. The first element of each row of `a` is 1, and the first element of each row of
/// the table is the offset.
struct Head {
    ExactCrossEntropy op;
    Case made;

    explicit Head(const Shape& shape) {
        const auto [rows, width, vocab, padded, size, offset, with_rstd] = shape;
        op.a = made.add("a", DType::bf16, rows, width, Fill::normal, 1, Access::in, 8);
        op.table = made.add("table", DType::bf16, vocab, width, Fill::normal,
                            size / std::sqrt(static_cast<double>(width)), Access::in, 16);
        if (with_rstd) op.rstd = made.add("rstd", DType::f32, 1, rows, Fill::positive, 1);
        op.targets = made.add("targets", DType::i32, 1, rows, Fill::targets, static_cast<double>(vocab));
        op.flags = made.add("flags", DType::i32, 1, rows, Fill::targets, 1);  // -1 and 0
        op.exponentials = made.add("exponentials", DType::bf16, rows, padded, Fill::positive, 1, Access::inout, 8);
        op.scale = made.add("scale", DType::f32, 1, rows, Fill::positive, 1, Access::inout);
        op.dot = made.add("dot", DType::f32, 1, rows, Fill::normal, 1, Access::inout);
        op.loss = made.add("loss", DType::f32, 1, rows, Fill::positive, 1, Access::inout);
        op.scratch = made.add("scratch", DType::f32, 1, ceil_div(op.scratch_bytes(), 4), Fill::nothing, 0);
        op.scratch.dtype = DType::u8;
        op.scratch.cols = op.scratch.ld = op.scratch_bytes();
        made.op = op;
    }
};

void put(const Memory& memory, const View& view, std::int64_t row, std::int64_t column, double value) {
    View one = view.row_slice(row, 1);
    one.offset += column * size_of(view.dtype);
    const Bf16 stored(static_cast<float>(value));
    const auto word = static_cast<std::int32_t>(value);
    const void* from = view.dtype == DType::i32 ? static_cast<const void*>(&word) : &stored;
    CUDA_CHECK(
        cudaMemcpy(memory.address(one), from, static_cast<std::size_t>(size_of(view.dtype)), cudaMemcpyHostToDevice));
}

std::int32_t integer(const Bytes& buffers, const View& view, std::int64_t i) {
    std::int32_t value = 0;
    std::memcpy(&value, buffers[static_cast<std::size_t>(view.buffer)].data() + 4 * i, sizeof value);
    return value;
}

/// scale Σ_v l g of a row's stored gradient, in double, and Σ_v |g| scale.
std::pair<double, double> dot_of(const Bytes& got, const ExactCrossEntropy& op, std::int64_t m) {
    std::vector<double> input(static_cast<std::size_t>(op.a.cols));
    const double rstd = op.rstd ? element(got, op.rstd, 0, m) : 1;
    for (std::int64_t k = 0; k < op.a.cols; ++k) input[static_cast<std::size_t>(k)] = rstd * element(got, op.a, m, k);
    double dot = 0, terms = 0;
    for (std::int64_t v = 0; v < op.table.rows; ++v) {
        double logit = 0;
        for (std::int64_t k = 0; k < op.a.cols; ++k)
            logit += input[static_cast<std::size_t>(k)] * element(got, op.table, v, k);
        const double g = element(got, op.exponentials, m, v);
        dot += g * logit;
        terms += std::fabs(g);
    }
    const double scale = element(got, op.scale, 0, m);
    return {scale * dot, scale * terms};
}

/// `flag`: the value of all flags, unless negative; then as filled, about half of them.
void check_exact(const Shape& shape, int flag, bool evaluation = false) {
    INFO(shape.rows << " x " << shape.width << " x " << shape.vocab << ", size " << shape.size << ", offset "
                    << shape.offset << ", flag " << flag << (evaluation ? ", evaluation" : ""));
    Head head(shape);
    ExactCrossEntropy op = head.op;
    if (evaluation) op.exponentials = op.scale = op.dot = View{};
    const auto& buffers = head.made.buffers;
    Bytes first;
    for (int run = 0; run < 2; ++run) {
        const cases::DeviceBuffers device(buffers, 29);
        for (std::int64_t m = 0; m < shape.rows; ++m) {
            put(device.memory(), op.a, m, 0, 1);
            if (flag >= 0) put(device.memory(), op.flags, 0, m, flag);
        }
        for (std::int64_t v = 0; v < shape.vocab; ++v) put(device.memory(), op.table, v, 0, shape.offset);
        const Bytes before = download(buffers, device.memory());
        Bytes expected = before;
        cpu::run(op, memory_of(expected));
        hopper::prepare(op, device.memory())(nullptr);
        CUDA_CHECK(cudaDeviceSynchronize());
        const Bytes got = download(buffers, device.memory());
        if (run == 1) {
            for (std::size_t i = 0; i < buffers.size(); ++i)
                if (std::string(buffers[i].name) != "scratch") CHECK(got[i] == first[i]);
            return;
        }
        first = got;
        for (const View& input : {View(op.a), View(op.table), View(op.targets), View(op.flags)})
            CHECK(got[static_cast<std::size_t>(input.buffer)] == before[static_cast<std::size_t>(input.buffer)]);
        // fp32 logits of up to six times the size, and of the offset times rstd: a few 2^-24 of them.
        const double logit_error = 0x1p-21 * (6 * shape.size + 1.5 * std::fabs(shape.offset)) + 1e-5;
        for (std::int64_t m = 0; m < shape.rows; ++m) {
            const double loss = element(got, head.op.loss, 0, m), want = element(expected, head.op.loss, 0, m);
            CHECK(std::fabs(loss - want) <= logit_error + 1e-6 * std::fabs(want));
            if (evaluation) continue;
            const double scale = element(got, op.scale, 0, m);
            CHECK(std::fabs(scale - element(expected, op.scale, 0, m)) <= logit_error * scale + 1e-30);
            double sum = 0, largest = 0, terms = 0, worst = 0;
            const bool replaced = integer(got, op.flags, m) != 0 && integer(got, op.targets, m) >= 0;
            for (std::int64_t v = 0; v < shape.padded; ++v) {
                const double g = element(got, op.exponentials, m, v), other = element(expected, op.exponentials, m, v);
                // A step is 2^-7 of q at most, and `other` is not below q by more than a step.
                const double steps = (0x1p-6 + 2 * logit_error) * (1 + 0x1p-6);
                worst = std::max(worst, std::fabs(g - other) - steps * std::fabs(other) - 0x1p-120);
                sum += g;
                terms += std::fabs(g);
                if (g > largest) largest = g;
            }
            CHECK(worst <= 0);
            // Each of 32 x 32 lanes and slices keeps up to half a step of its own.
            if (replaced) CHECK(std::fabs(sum) <= std::min(0x1p-8 * terms, 1024 * 0x1p-8 * largest) + 1e-6);
            const double dot = element(got, op.dot, 0, m), dot_error = 0x1p-7 * (6 * shape.size) * scale;
            CHECK(std::fabs(dot - element(expected, op.dot, 0, m)) <=
                  dot_error + scale * (logit_error + std::fabs(shape.offset) * 0x1p-8) + 1e-30);
            // For the gradient as this kernel stored it, dot is as right as the logits.
            if (!replaced || m >= kRowsWithDot || shape.vocab * shape.width > kMostForDot) continue;
            const auto [of_stored, size] = dot_of(got, op, m);
            CHECK(std::fabs(dot - of_stored) <= size * logit_error + 0x1p-22 * std::fabs(of_stored) + 1e-30);
        }
    }
}

}  // namespace

TEST_CASE("flagged rows have the CPU's loss and gradient", "[gpu]") {
    if (!has_hopper()) return;
    for (const int flag : {-1, 1}) {
        check_exact({1, 8, 3, 8, 10, 0, false}, flag);
        check_exact({33, 72, 1000, 1024, 60, 0}, flag);
        check_exact({150, 264, 5000, 5056, 300, 0}, flag);
        check_exact({70, 136, 4100, 4160, 3, 1000}, flag);
        check_exact({70, 136, 4100, 4160, 3, -1000, false}, flag);
        check_exact({64, 2048, 8192, 8192, 2000, 0}, flag);
        check_exact({2100, 8, 40, 64, 10, 0}, flag);  // more rows than the list's kernel has threads
        check_exact({150, 264, 5000, 5056, 300, 0}, flag, true);
    }
}

TEST_CASE("one flagged row in a large head", "[gpu]") {
    if (!has_hopper()) return;
    check_exact({2, 2048, 128256, 128256, 60, 0}, 1);
    check_exact({2, 2048, 128256, 128256, 60, 0}, 1, true);
}

// All logits of a row are equal, so all roundings go the same way: the row sums to 0 only where they are handed on.
TEST_CASE("a flagged row of equal logits sums to 0", "[gpu]") {
    if (!has_hopper()) return;
    check_exact({2, 8, 128256, 128256, 0, 1000}, 1);
    check_exact({3, 16, 50257, 50304, 0, -300, false}, 1);
}

TEST_CASE("without a flagged row nothing changes", "[gpu]") {
    if (!has_hopper()) return;
    const Head head({70, 136, 4100, 4160, 3, 0});
    const cases::DeviceBuffers device(head.made.buffers, 29);
    for (std::int64_t m = 0; m < 70; ++m) put(device.memory(), head.op.flags, 0, m, 0);
    const Bytes before = download(head.made.buffers, device.memory());
    hopper::prepare(head.op, device.memory())(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    const Bytes got = download(head.made.buffers, device.memory());
    for (std::size_t i = 0; i + 1 < got.size(); ++i) CHECK(got[i] == before[i]);  // the last is scratch
}

TEST_CASE("a flagged row with a logit that is not finite becomes NaN, and no other", "[gpu]") {
    if (!has_hopper()) return;
    const Head head({70, 136, 4100, 4160, 3, 0});
    const cases::DeviceBuffers device(head.made.buffers, 29);
    for (std::int64_t m = 0; m < 70; ++m) {
        put(device.memory(), head.op.flags, 0, m, 1);
        put(device.memory(), head.op.targets, 0, m, m);
    }
    put(device.memory(), head.op.a, 11, 5, NAN);
    put(device.memory(), head.op.a, 40, 5, INFINITY);
    hopper::prepare(head.op, device.memory())(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    const Bytes got = download(head.made.buffers, device.memory());
    for (std::int64_t m = 0; m < 70; ++m) {
        const bool bad = m == 11 || m == 40;
        for (const View& view : {View(head.op.loss), View(head.op.scale), View(head.op.dot)})
            CHECK(std::isnan(element(got, view, 0, m)) == bad);
        for (const std::int64_t v : {std::int64_t{0}, m, std::int64_t{4099}})
            CHECK(std::isnan(element(got, head.op.exponentials, m, v)) == bad);
    }
}

// The three ops in a row, on logits of 1000 and more about a common offset: the fast form flags, the exact one
// replaces.
TEST_CASE("the GPU flags the rows that the CPU flags", "[gpu]") {
    if (!has_hopper()) return;
    constexpr std::int64_t kRows = 200;
    for (const bool evaluation : {false, true}) {
        Case made;
        FinishCrossEntropy op;
        op.sums = made.add("sums", DType::f32, 3, 2 * kRows, Fill::positive, 0x1p-55);
        op.target_logit = made.add("target_logit", DType::f32, 1, kRows, Fill::normal, 200);  // some beyond 256
        op.targets = made.add("targets", DType::i32, 1, kRows, Fill::targets, 20);
        if (!evaluation) {
            op.exponentials =
                made.add("exponentials", DType::bf16, kRows, 23, Fill::positive, 0x1p-58, Access::inout, 8);
            op.scale = made.result("scale", 1, kRows);
            op.dot = made.result("dot", 1, kRows);
        }
        op.loss = made.result("loss", 1, kRows);
        op.flags = made.add("flags", DType::i32, 1, kRows, Fill::positions, 1, Access::out);
        made.op = op;
        const cases::DeviceBuffers device(made.buffers, 17);
        const float large[2] = {0x1p109f, INFINITY};
        View pair = op.sums.row_slice(1, 1);
        for (const int i : {0, 1}) {  // Σ e of row 50, Σ e d of row 51
            pair.offset = op.sums.offset + (op.sums.ld + 2 * (50 + i) + i) * 4;
            CUDA_CHECK(cudaMemcpy(device.memory().address(pair), &large[i], 4, cudaMemcpyHostToDevice));
        }
        Bytes expected = download(made.buffers, device.memory());
        cpu::run(made.op, memory_of(expected));
        hopper::prepare(made.op, device.memory())(nullptr);
        CUDA_CHECK(cudaDeviceSynchronize());
        const Bytes got = download(made.buffers, device.memory());
        CHECK(got[static_cast<std::size_t>(op.flags.buffer)] == expected[static_cast<std::size_t>(op.flags.buffer)]);
        int flagged = 0;
        for (std::int64_t m = 0; m < kRows; ++m) {
            const bool flag = integer(got, op.flags, m) == 1;
            flagged += flag;
            if (flag) CHECK(element(got, op.loss, 0, m) == 0);
            if (m == 50 || m == 51) CHECK(flag == (integer(got, op.targets, m) >= 0));
            if (evaluation || !flag) continue;
            CHECK(element(got, op.scale, 0, m) == 0);
            CHECK(element(got, op.dot, 0, m) == 0);
        }
        CHECK(flagged > 10);
        CHECK(flagged < kRows / 2);
    }
}
