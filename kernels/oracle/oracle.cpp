#include "kernels/oracle/oracle.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/run.h"
#include "kernels/hopper/sm90/check.h"
#include "kernels/oracle/gemm_check.h"

namespace coda::oracle {

namespace {

constexpr std::int64_t kBandBytes = std::int64_t{256} << 20;

std::int64_t span_bytes(const View& view) {
    return view.rows == 0 ? 0 : ((view.rows - 1) * view.ld + view.cols) * size_of(view.dtype);
}

bool share_bytes(const View& a, const View& b) {
    return a.buffer == b.buffer && a.offset < b.offset + span_bytes(b) && b.offset < a.offset + span_bytes(a);
}

/// Whether the op overwrites an operand that it also reads.
template <class T>
bool is_overwritten(const T& op, const View& view, Access access) {
    if (access == Access::inout) return true;
    bool shared = false;
    if (access == Access::in)
        for_each_operand(op, [&](const char*, const View& other, Access how) {
            shared = shared || (how != Access::in && share_bytes(view, other));
        });
    return shared;
}

/// Scratch means nothing before and after an op.
bool is_scratch(const char* operand) { return std::strcmp(operand, "scratch") == 0; }

/// Copies a view's rows between memories, in one piece where neither side has gaps.
void copy_rows(void* to, std::int64_t to_ld, const void* from, std::int64_t from_ld, const View& view,
               cudaMemcpyKind kind, hopper::Stream stream) {
    const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements * size_of(view.dtype)); };
    if (view.rows <= 1 || (to_ld == view.cols && from_ld == view.cols)) {
        CUDA_CHECK(cudaMemcpyAsync(to, from, bytes(view.count()), kind, stream));
    } else {
        CUDA_CHECK(cudaMemcpy2DAsync(to, bytes(to_ld), from, bytes(from_ld), bytes(view.cols),
                                     static_cast<std::size_t>(view.rows), kind, stream));
    }
}

double element(const std::byte* data, DType dtype, std::int64_t i) {
    const auto read = [&]<class T>(T value) {
        std::memcpy(&value, data + i * static_cast<std::int64_t>(sizeof value), sizeof value);
        return static_cast<double>(value);
    };
    switch (dtype) {
        case DType::f64: return read(double());
        case DType::f32: return read(float());
        case DType::i32: return read(std::int32_t());
        case DType::bf16:
            return static_cast<double>(static_cast<float>([&] {
                Bf16 value;
                std::memcpy(&value, data + 2 * i, sizeof value);
                return value;
            }()));
        case DType::u8: break;
    }
    return 0;
}

/// Elements of the same bits are equal whatever they mean: what neither side wrote is left out so.
OperandError compare(const char* operand, const std::vector<std::byte>& live, const std::vector<std::byte>& expected,
                     const View& view) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    double difference = 0, squares = 0, largest = 0, magnitude = 0;
    const auto size = static_cast<std::size_t>(size_of(view.dtype));
    for (std::int64_t i = 0; i < view.count(); ++i) {
        const std::size_t at = static_cast<std::size_t>(i) * size;
        const double want = element(expected.data(), view.dtype, i);
        const bool equal = std::memcmp(live.data() + at, expected.data() + at, size) == 0;
        if (equal && !std::isfinite(want)) continue;
        const double off = equal ? 0 : element(live.data(), view.dtype, i) - want;
        if (!std::isfinite(off)) return {operand, kInfinity, kInfinity};
        difference += off * off;
        squares += want * want;
        largest = std::max(largest, std::fabs(off));
        magnitude = std::max(magnitude, std::fabs(want));
    }
    if (difference == 0) return {operand, 0, 0};
    if (squares == 0) return {operand, kInfinity, kInfinity};
    return {operand, std::sqrt(difference / squares), largest / magnitude};
}

/// The op on host copies of its operands, each in a buffer of its own.
template <class T>
std::vector<OperandError> check_on_host(const T& op, const Memory& memory, const Capture& before,
                                        hopper::Stream stream) {
    T host = op;
    std::vector<std::vector<std::byte>> live, buffers;
    const auto move_in = [&](const auto& entry) {
        auto& operand = host.*(entry.member);
        if (!operand) return;
        View& view = operand;
        std::vector<std::byte> bytes(static_cast<std::size_t>(view.bytes()));
        copy_rows(bytes.data(), view.cols, memory.address(view), view.ld, view, cudaMemcpyDeviceToHost, stream);
        CUDA_CHECK(cudaStreamSynchronize(stream));
        live.push_back(bytes);
        const auto copy = before.copies.find(entry.name);
        if (copy != before.copies.end())
            CUDA_CHECK(cudaMemcpy(bytes.data(), copy->second.get(), bytes.size(), cudaMemcpyDeviceToHost));
        buffers.push_back(std::move(bytes));
        view.buffer = static_cast<BufferId>(buffers.size()) - 1;
        view.offset = 0;
        view.ld = view.cols;
    };
    std::apply([&](const auto&... entries) { (move_in(entries), ...); }, T::operands);
    std::vector<std::byte*> bases;
    for (auto& buffer : buffers) bases.push_back(buffer.data());
    cpu::run(host, Memory(bases));

    std::vector<OperandError> errors;
    for_each_operand(host, [&](const char* operand, const View& view, Access access) {
        const auto i = static_cast<std::size_t>(view.buffer);
        if (access != Access::in && !is_scratch(operand)) errors.push_back(compare(operand, live[i], buffers[i], view));
    });
    return errors;
}

}  // namespace

struct Oracle::Resources {
    std::int64_t host_budget = 0;
    std::unique_ptr<CublasLt> cublas;
    CheckBuffers buffers;

    void prepare_products() {
        if (cublas) return;
        cublas = std::make_unique<CublasLt>();
        CUDA_CHECK(cudaMalloc(&buffers.product, static_cast<std::size_t>(kBandBytes)));
        buffers.product_bytes = kBandBytes;
        CUDA_CHECK(cudaMalloc(&buffers.sums, static_cast<std::size_t>(CheckBuffers::kSumsBytes)));
    }
    ~Resources() {
        cudaFree(buffers.product);
        cudaFree(buffers.sums);
    }
};

double Report::worst_rms() const {
    double worst = 0;
    for (const OperandError& error : operands) worst = std::max(worst, error.rms);
    return worst;
}

Oracle::Oracle(std::int64_t host_budget) : resources_(std::make_unique<Resources>()) {
    resources_->host_budget = host_budget;
}
Oracle::~Oracle() = default;

Capture Oracle::capture(const Op& op, const Memory& memory, hopper::Stream stream) {
    Capture capture;
    for_each_operand(op, [&](const char* operand, const View& view, Access access) {
        const bool needed =
            std::visit([&](const auto& concrete) { return is_overwritten(concrete, view, access); }, op);
        if (!needed || is_scratch(operand)) return;
        void* copy = nullptr;
        CUDA_CHECK(cudaMalloc(&copy, static_cast<std::size_t>(view.bytes())));
        capture.copies[operand] = std::shared_ptr<std::byte>(static_cast<std::byte*>(copy), cudaFree);
        copy_rows(copy, view.cols, memory.address(view), view.ld, view, cudaMemcpyDeviceToDevice, stream);
    });
    CUDA_CHECK(cudaStreamSynchronize(stream));
    return capture;
}

Report Oracle::check(const Op& op, const Memory& memory, const Capture& before, hopper::Stream stream) {
    std::int64_t bytes = 0;
    for_each_operand(op, [&](const char* operand, const View& view, Access access) {
        bytes += is_scratch(operand) ? 0 : view.bytes();
        const bool needed =
            std::visit([&](const auto& concrete) { return is_overwritten(concrete, view, access); }, op);
        require(!needed || is_scratch(operand) || before.copies.count(operand) == 1, name_of(op), ": operand ", operand,
                " was not captured before the launch");
    });
    Report report;
    std::visit(
        [&](const auto& concrete) {
            if constexpr (requires(GemmCheck & check) { check_gemm(concrete, check); }) {
                resources_->prepare_products();
                GemmCheck check(*resources_->cublas, resources_->buffers, memory, before, stream);
                check_gemm(concrete, check);
                report.operands = check.results();
            } else if (bytes > resources_->host_budget) {
                report.skipped = text("its operands of ", bytes, " bytes exceed the oracle's host budget of ",
                                      resources_->host_budget);
            } else {
                report.operands = check_on_host(concrete, memory, before, stream);
            }
        },
        op);
    return report;
}

}  // namespace coda::oracle
