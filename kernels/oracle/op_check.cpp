#include "kernels/oracle/op_check.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/integers.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/oracle/decode_f8.h"

namespace coda::oracle {

WorkSpace::DeviceMemory WorkSpace::allocate(std::int64_t bytes) {
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
    require(status == cudaSuccess, "oracle: cannot allocate ", bytes,
            " bytes of device memory: ", cudaGetErrorString(status));
    return {static_cast<std::byte*>(memory), [](std::byte* address) { cudaFree(address); }};
}

WorkSpace::WorkSpace(std::int64_t bytes) : bytes_(bytes), data_(allocate(bytes)), sums_(allocate(kSumsBytes)) {}

CublasLt& WorkSpace::products() {
    if (!cublas_) cublas_ = std::make_unique<CublasLt>();
    return *cublas_;
}

float* Pieces::floats(std::int64_t count) {
    const std::int64_t first = used_, size = count * size_of(DType::f32);
    require(first + size <= space_.bytes(), "oracle: its work space of ", space_.bytes(), " bytes is too small, ",
            first + size, " are needed at least");
    used_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<float*>(space_.data() + first);
}

const std::byte* OpCheck::captured(const char* operand) const {
    const auto found = before_.copies.find(operand);
    return found == before_.copies.end() ? nullptr : found->second.get();
}

void OpCheck::by_rows(const View& a, hopper::Major major_a, const View& b, hopper::Major major_b, std::int64_t unit,
                      const std::function<void(const float*, std::int64_t, std::int64_t)>& band) {
    if (is_f8(a.dtype)) return by_rows_f8(a, b, unit, band);
    const bool k_major = major_a == hopper::Major::k;
    const std::int64_t m = k_major ? a.rows : a.cols, n = major_b == hopper::Major::k ? b.rows : b.cols;
    auto* out = reinterpret_cast<float*>(space_.data());
    for (const auto [first, rows] : bands(m, n * size_of(DType::f32), unit, space_.bytes())) {
        Product next;
        next.a = memory_.address(a) + first * (k_major ? a.ld : 1) * size_of(a.dtype);
        next.b = memory_.address(b);
        next.out = out;
        next.m = rows;
        next.n = n;
        next.k = k_major ? a.cols : a.rows;
        next.lda = a.ld;
        next.ldb = b.ld;
        next.major_a = major_a;
        next.major_b = major_b;
        product(next);
        band(out, first, rows);
    }
}

void OpCheck::by_rows_f8(const View& a, const View& b, std::int64_t unit,
                         const std::function<void(const float*, std::int64_t, std::int64_t)>& band) {
    constexpr std::int64_t kAlignedRows = 64;  // of b: where a band of it begins, so do whole 256 bytes of the result
    const std::int64_t n = b.rows, k = b.cols, decoded_row = k * size_of(DType::bf16);
    const std::int64_t row_bytes = n * size_of(DType::f32) + decoded_row;
    const std::vector<Band> cut_b = bands(n, decoded_row, std::min(kAlignedRows, n), space_.bytes() / 4);
    const std::int64_t b_bytes = round_up(cut_b.front().rows * decoded_row, Pieces::kAlignment);
    std::byte *decoded_b = space_.data(), *decoded_a = decoded_b + b_bytes;
    const std::vector<Band> cut_a = bands(a.rows, row_bytes, unit, space_.bytes() - b_bytes - Pieces::kAlignment);
    for (const auto [first, rows] : cut_a) {
        auto* out = reinterpret_cast<float*>(decoded_a + round_up(rows * decoded_row, Pieces::kAlignment));
        decode_f8(a, memory_.address(a), first, rows, decoded_a, stream_);
        for (const auto [first_b, rows_b] : cut_b) {
            if (cut_b.size() > 1 || first == 0) {
                decode_f8(b, memory_.address(b), first_b, rows_b, decoded_b, stream_);
            }
            Product next;
            next.a = decoded_a;
            next.b = decoded_b;
            next.out = out + first_b;
            next.m = rows;
            next.n = rows_b;
            next.k = next.lda = next.ldb = k;
            next.ld_out = n;
            product(next);
        }
        band(out, first, rows);
    }
}

OpCheck::Compared& OpCheck::compared(const char* operand) {
    const auto found =
        std::find_if(compared_.begin(), compared_.end(), [&](const auto& entry) { return entry.operand == operand; });
    if (found != compared_.end()) return *found;
    return compared_.emplace_back(Compared{operand, {}, {}});
}

void OpCheck::add(const char* operand, const ErrorSums& sums) {
    ErrorSums& total = compared(operand).sums;
    total.difference += sums.difference;
    total.expected += sums.expected;
    total.largest_difference = std::max(total.largest_difference, sums.largest_difference);
    total.largest_expected = std::max(total.largest_expected, sums.largest_expected);
}

void OpCheck::add_terms(const char* operand, double squares, double largest) {
    ErrorSums& total = compared(operand).terms;
    total.expected += squares;
    total.largest_expected = std::max(total.largest_expected, largest);
}

std::vector<OperandError> OpCheck::results() const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::vector<OperandError> errors;
    for (const auto& [operand, sums, terms] : compared_) {
        OperandError error{operand, 0, 0};
        if (!std::isfinite(sums.difference) || !std::isfinite(sums.expected)) {
            error.rms = error.largest = kInfinity;
        } else if (sums.difference > 0) {
            const double squares = std::max(sums.expected, terms.expected);
            const double largest = std::max(sums.largest_expected, terms.largest_expected);
            error.rms = squares > 0 ? std::sqrt(sums.difference / squares) : kInfinity;
            error.largest = largest > 0 ? sums.largest_difference / largest : kInfinity;
        }
        errors.push_back(error);
    }
    return errors;
}

}  // namespace coda::oracle
