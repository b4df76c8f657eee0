// GFLOP/s of the CPU executor's GEMM programs, one line per shape: program | storage | M N K | ms | GFLOP/s.
//
// Median of 7 runs after one warm-up; 2 M N K FLOPs. OMP_NUM_THREADS sets the threads.
#include <omp.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/core/integers.h"
#include "kernels/cpu/execute.h"
#include "kernels/ops.h"
#include "src/core/median.h"

namespace {

using namespace coda;

/// The buffers of one measurement.
class Bench {
  public:
    Bench(DType storage, std::int64_t m, std::int64_t n, std::int64_t k) : storage_(storage), m_(m), n_(n), k_(k) {}

    /// A matrix of the storage type or of `dtype`, uniform in [-1, 1).
    View matrix(std::int64_t rows, std::int64_t cols) { return matrix(storage_, rows, cols); }
    View statistic(std::int64_t rows, std::int64_t cols) {
        return matrix(storage_ == DType::f64 ? DType::f64 : DType::f32, rows, cols);
    }
    View matrix(DType dtype, std::int64_t rows, std::int64_t cols) {
        const View view{static_cast<BufferId>(buffers_.size()), dtype, 0, rows, cols, cols, 0};
        std::byte* bytes = buffers_.emplace_back(std::make_unique<std::byte[]>(view.bytes())).get();
        if (dtype == DType::f64) fill(reinterpret_cast<double*>(bytes), view.count());
        if (dtype == DType::f32) fill(reinterpret_cast<float*>(bytes), view.count());
        if (dtype == DType::bf16) fill(reinterpret_cast<Bf16*>(bytes), view.count());
        return view;
    }

    template <class Op>
    void measure(const Op& op) const {
        std::vector<std::byte*> bases;
        for (const auto& buffer : buffers_) bases.push_back(buffer.get());
        const Memory memory(std::move(bases));
        std::vector<double> seconds;
        for (int repetition = 0; repetition < 8; ++repetition) {
            const auto begin = std::chrono::steady_clock::now();
            cpu::execute(op, memory);
            const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
            if (repetition > 0) seconds.push_back(elapsed.count());
        }
        const double median = median_of(seconds);
        const double flops = 2.0 * static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_);
        std::printf("%-22s | %-4s | %5lld %6lld %5lld | %8.2f ms | %6.1f GFLOP/s\n", Op::name, name_of(storage_),
                    static_cast<long long>(m_), static_cast<long long>(n_), static_cast<long long>(k_), median * 1e3,
                    flops / median * 1e-9);
    }

  private:
    template <class T>
    void fill(T* values, std::int64_t count) {
        std::uniform_real_distribution<float> uniform(-1, 1);
        for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(uniform(generator_));
    }

    DType storage_;
    std::int64_t m_, n_, k_;
    std::vector<std::unique_ptr<std::byte[]>> buffers_;
    std::mt19937 generator_{1};
};

void forward(DType storage, std::int64_t m, std::int64_t n, std::int64_t k) {
    Bench bench(storage, m, n, k);
    bench.measure(Linear{
        .a = bench.matrix(m, k), .w = bench.matrix(n, k), .rstd = {}, .out = {bench.matrix(m, n), Beta::overwrite}});
}

void dgrad(DType storage, std::int64_t m, std::int64_t n, std::int64_t k) {
    Bench bench(storage, m, n, k);
    bench.measure(Linear{.a = bench.matrix(m, k),
                         .w = bench.matrix(k, n),
                         .rstd = {},
                         .out = {bench.matrix(m, n), Beta::overwrite},
                         .layout = WeightLayout::in_out});
}

void weight_gradient(DType storage, std::int64_t m, std::int64_t n, std::int64_t k) {
    Bench bench(storage, m, n, k);
    bench.measure(WeightGradient{.dy = bench.matrix(k, m),
                                 .x = bench.matrix(k, n),
                                 .gamma = View{},
                                 .alpha = View{},
                                 .grad = {bench.statistic(m, n), Beta::accumulate},
                                 .scratch = View{}});
}

void programs(DType storage, std::int64_t m, std::int64_t d, std::int64_t f, std::int64_t vocab) {
    constexpr std::int64_t kTile = 128;
    const auto tiles = [](std::int64_t length) { return ceil_div(length, kTile); };
    {
        Bench bench(storage, m, d, f);
        bench.measure(LinearResidualRms{.a = bench.matrix(m, f),
                                        .w = bench.matrix(d, f),
                                        .bias = {},
                                        .residual = bench.matrix(m, d),
                                        .x = bench.matrix(m, d),
                                        .square = bench.statistic(tiles(d), m),
                                        .tile = kTile});
    }
    {
        Bench bench(storage, m, 2 * f, d);
        bench.measure(LinearSwiglu{.a = bench.matrix(m, d),
                                   .w = bench.matrix(2 * f, d),
                                   .rstd = bench.statistic(1, m),
                                   .z = bench.matrix(m, 2 * f),
                                   .y = bench.matrix(m, f)});
    }
    {
        Bench bench(storage, m, vocab, d);
        bench.measure(LinearCrossEntropy{.a = bench.matrix(m, d),
                                         .w = bench.matrix(vocab, d),
                                         .rstd = bench.statistic(1, m),
                                         .target_logit = bench.statistic(1, m),
                                         .exponentials = bench.matrix(m, vocab),
                                         .sums = bench.statistic(tiles(vocab), 2 * m),
                                         .vocab = vocab,
                                         .tile = kTile});
    }
    {
        Bench bench(storage, m, d, 2 * f);
        bench.measure(LinearRmsBackward{.a = bench.matrix(m, 2 * f),
                                        .w = bench.matrix(2 * f, d),
                                        .x = bench.matrix(m, d),
                                        .rstd = bench.statistic(1, m),
                                        .dot = bench.statistic(1, m),
                                        .alpha = View{},
                                        .scale = View{},
                                        .dx = {bench.matrix(m, d), Beta::overwrite},
                                        .n = View{},
                                        .dgamma = bench.statistic(tiles(m), d),
                                        .dx_sum = View{},
                                        .tile = kTile});
    }
    Bench bench(storage, m, f, d);
    bench.measure(LinearSwigluBackward{.a = bench.matrix(m, d),
                                       .w = bench.matrix(d, f),
                                       .z = bench.matrix(m, 2 * f),
                                       .z_scale = {},
                                       .rstd = bench.statistic(1, m),
                                       .dz = bench.matrix(m, 2 * f),
                                       .y = View{},
                                       .dot = bench.statistic(tiles(f), m),
                                       .tile = kTile});
}

}  // namespace

int main() {
    std::printf("threads: %d\n", omp_get_max_threads());
    for (const DType storage : {DType::f32, DType::bf16, DType::f64}) {
        forward(storage, 1024, 2048, 1024);
        dgrad(storage, 1024, 2048, 1024);
        weight_gradient(storage, 1024, 2048, 1024);
        forward(storage, 2048, 384, 384);
        weight_gradient(storage, 384, 384, 2048);
        programs(storage, 2048, 384, 1024, 32064);
    }
}
