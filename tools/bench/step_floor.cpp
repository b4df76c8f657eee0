#include "tools/bench/step_floor.h"

#include <algorithm>
#include <concepts>

#include "kernels/cases/device_buffers.h"
#include "kernels/cost.h"
#include "kernels/hopper/sm90/check.h"

namespace coda::bench {

namespace {

constexpr int kHeuristics = 8;

/// The bare GEMM of an op, without its epilogue: operands, majors, and the operand that takes the result (absent where
/// the op stores nothing of that shape).
struct Bare {
    View a, b, out;
    bool weight = true;  // b is a weight
    hopper::Major major_a = hopper::Major::k, major_b = hopper::Major::k;
    DType out_dtype = DType::bf16;

    std::int64_t m() const { return major_a == hopper::Major::k ? a.rows : a.cols; }
    std::int64_t n() const { return major_b == hopper::Major::k ? b.rows : b.cols; }
    std::int64_t k() const { return major_a == hopper::Major::k ? a.cols : a.rows; }
    double flops() const {
        return 2.0 * static_cast<double>(m()) * static_cast<double>(n()) * static_cast<double>(k());
    }
    std::int64_t out_bytes() const { return m() * n() * size_of(out_dtype); }
};

template <class T>
WeightLayout layout_of(const T& op) {
    if constexpr (T::traits.has(Trait::layout))
        if (!is_f8(op.w.dtype)) return op.layout;
    return WeightLayout::out_in;
}

std::vector<Bare> gemms_of(const Schedule& schedule) {
    std::vector<Bare> gemms;
    const auto add = [&]<class T>(const T& op) {
        if constexpr (std::same_as<T, WeightGradient>) {
            gemms.push_back({op.dy, op.x, op.grad, false, hopper::Major::mn, hopper::Major::mn, op.grad.dtype});
        } else if constexpr (T::traits.has(Trait::w)) {
            View out;
            if constexpr (T::traits.has(Trait::result)) out = op.result();
            gemms.push_back({op.a, op.w, out, true, hopper::Major::k,
                             layout_of(op) == WeightLayout::in_out ? hopper::Major::mn : hopper::Major::k,
                             out ? out.dtype : DType::bf16});
        }
    };
    for (const Step& step : schedule) {
        const std::size_t before = gemms.size();
        std::visit(add, step.op);
        double flops = 0;
        for (std::size_t i = before; i < gemms.size(); ++i) flops += gemms[i].flops();
        require(flops == (work_of(step.op) == Work::gemm ? cost(step.op).flops : 0), "the floor's GEMM of ", step.name,
                " (", name_of(step.op), ") is not the op's");
    }
    return gemms;
}

}  // namespace

/// The same bytes, each of them once.
std::vector<GemmFloor::Span> GemmFloor::merged(std::vector<Span> spans) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    std::vector<Span> result;
    for (const Span& span : spans) {
        if (!result.empty() && span.begin <= result.back().end) {
            result.back().end = std::max(result.back().end, span.end);
        } else {
            result.push_back(span);
        }
    }
    return result;
}

GemmFloor::GemmFloor(const Schedule& schedule, const Memory& memory) {
    const std::vector<Bare> gemms = gemms_of(schedule);
    std::int64_t spare_bytes = 0;
    // cuBLASLt's result has no gaps between rows here, so a result with gaps goes elsewhere.
    const auto in_place = [](const Bare& bare) {
        return bare.out && bare.out.ld == bare.n() && bare.out.count() == bare.m() * bare.n();
    };
    for (const Bare& bare : gemms)
        if (!in_place(bare)) spare_bytes = std::max(spare_bytes, bare.out_bytes());
    if (spare_bytes > 0) CUDA_CHECK(cudaMalloc(&spare_, static_cast<std::size_t>(spare_bytes)));

    for (const Bare& bare : gemms) {
        const auto add = [&](const View& view) {
            auto* begin = static_cast<std::byte*>(memory.address(view));
            operands_.push_back({begin, begin + view.span_bytes()});
        };
        add(bare.a);
        if (!bare.weight) add(bare.b);
    }
    operands_ = merged(std::move(operands_));

    std::vector<hopper::Launch> launches;
    for (const Bare& bare : gemms) {
        oracle::Product product;
        product.a = memory.address(bare.a);
        product.b = memory.address(bare.b);
        product.out = in_place(bare) ? memory.address(bare.out) : spare_;
        product.m = bare.m();
        product.n = bare.n();
        product.k = bare.k();
        product.lda = bare.a.ld;
        product.ldb = bare.b.ld;
        product.major_a = bare.major_a;
        product.major_b = bare.major_b;
        product.out_dtype = bare.out_dtype;
        launches.push_back(cublas_.product(product, kHeuristics));
    }
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    cudaGraph_t graph{};
    CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (const hopper::Launch& launch : launches) launch(stream_);
    CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
    const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    CUDA_CHECK(status);
}

void GemmFloor::fill() {
    std::uint64_t seed = 1;
    for (const Span& span : operands_) fill_normal(span.begin, (span.end - span.begin) / 2, seed++, stream_);
    CUDA_CHECK(cudaStreamSynchronize(stream_));
}

GemmFloor::~GemmFloor() {
    if (graph_) cudaGraphExecDestroy(graph_);
    if (stream_) cudaStreamDestroy(stream_);
    cudaFree(spare_);
}

void GemmFloor::run() {
    CUDA_CHECK(cudaGraphLaunch(graph_, stream_));
    CUDA_CHECK(cudaStreamSynchronize(stream_));
}

}  // namespace coda::bench
