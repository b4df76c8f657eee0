#include "tools/bench/gemm_measure.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <ranges>

#include "kernels/hopper/run.h"
#include "kernels/hopper/sm90/check.h"
#include "src/core/median.h"
#include "tools/bench/energy.h"
#include "tools/bench/timer.h"

namespace coda::bench {

namespace {

constexpr double kRotatedBytes = 256e6;  // several times L2
constexpr int kHeuristics = 8;           // of cuBLASLt; the fastest of them is measured
constexpr int kLaunchesPerBlock = 12;    // at least

}  // namespace

oracle::Product bare_product(const GemmCase& made, const Memory& memory, void* out) {
    oracle::Product product;
    product.a = memory.address(made.a);
    product.b = memory.address(made.b);
    product.out = out;
    product.m = made.shape.m;
    product.n = made.shape.n;
    product.k = made.shape.k;
    product.lda = made.a.ld;
    product.ldb = made.b.ld;
    product.major_a = made.major_a;
    product.major_b = made.major_b;
    product.in_dtype = made.a.dtype;
    product.out_dtype = made.f32_out ? DType::f32 : DType::bf16;
    return product;
}

Contest::Contest(const GemmCase& made, oracle::CublasLt& cublas) : made_(made) {
    const int copies = std::max(1, static_cast<int>(kRotatedBytes / made.bytes()));
    const auto out_bytes = static_cast<std::size_t>(made.shape.m * made.shape.n * (made.f32_out ? 4 : 2));
    for (int copy = 0; copy < copies; ++copy) {
        buffers_.push_back(std::make_unique<DeviceBuffers>(made.buffers, static_cast<std::uint64_t>(copy) + 1));
        outputs_.push_back(nullptr);
        CUDA_CHECK(cudaMalloc(&outputs_.back(), out_bytes));
        cublas_.push_back(cublas.product(bare_product(made, buffers_.back()->memory(), outputs_.back()), kHeuristics));
    }
    Timer timer;
    timer.run(cublas_, 1);
    cublas_ms_ = timer.run(cublas_, 3);
}

Contest::~Contest() {
    for (void* out : outputs_) cudaFree(out);
}

std::vector<hopper::Launch> Contest::prepare(const hopper::Request& choice) const {
    std::vector<hopper::Launch> launches;
    for (const auto& buffers : buffers_) launches.push_back(hopper::prepare(made_.op, buffers->memory(), choice));
    return launches;
}

std::vector<hopper::TileConfig> Contest::tiles() const { return hopper::choose(made_.op).candidates; }

std::int64_t Contest::parts(const hopper::Request& choice) const { return hopper::choose(made_.op, choice).splits; }

int Contest::count(double seconds) const { return static_cast<int>(seconds * 1e3 / cublas_ms_) + 1; }

int Contest::count_per_block(const Turns& turns) const { return std::max(kLaunchesPerBlock, count(turns.block)); }

void Contest::warm_up(const std::vector<hopper::Launch>& launches, const Turns& turns) const {
    Timer timer;
    const int launches_per_block = count_per_block(turns);
    for (double spent = 0; spent < turns.warm_up * 1e3;)
        spent +=
            launches_per_block * (timer.run(launches, launches_per_block) + timer.run(cublas_, launches_per_block));
}

std::vector<Measured> Contest::measure(const std::vector<std::vector<hopper::Launch>>& sides,
                                       const Turns& turns) const {
    struct Sample {
        double ms, joules;
    };
    Timer timer;
    const EnergyCounter energy;
    const int launches_per_block = count_per_block(turns);
    const auto run = [&](const std::vector<hopper::Launch>& launches) {
        const double before = energy.joules();
        const double ms = timer.run(launches, launches_per_block);
        return Sample{ms, turns.block < kEnergyBlock ? 0 : (energy.joules() - before) / launches_per_block};
    };
    struct Pair {
        Sample side, cublas;
    };
    std::vector<std::vector<Pair>> pairs(sides.size());
    for (int block = 0; block < turns.blocks; ++block)
        for (std::size_t side = 0; side < sides.size(); ++side) {
            const Sample ours = run(sides[side]);
            pairs[side].push_back({ours, run(cublas_)});
        }
    std::vector<Measured> measured;
    for (const std::vector<Pair>& side : pairs) {
        const auto median = [&](const auto& part) {
            std::vector<double> values;
            for (const Pair& pair : side) values.push_back(part(pair));
            return median_of(values);
        };
        const auto ratio = [](const Pair& p) { return p.side.ms / p.cublas.ms; };
        const auto [lowest, highest] = std::ranges::minmax(side | std::views::transform(ratio));
        measured.push_back({.ms = median([](const Pair& p) { return p.side.ms; }),
                            .cublas_ms = median([](const Pair& p) { return p.cublas.ms; }),
                            .ratio = median(ratio),
                            .lowest_ratio = lowest,
                            .highest_ratio = highest,
                            .joules = median([](const Pair& p) { return p.side.joules; }),
                            .cublas_joules = median([](const Pair& p) { return p.cublas.joules; }),
                            .energy_ratio = median([](const Pair& p) {
                                return p.cublas.joules > 0 ? p.side.joules / p.cublas.joules : 0;
                            })});
    }
    return measured;
}

std::string energy_column(const Measured& measured) {
    if (measured.joules <= 0) return "";
    char column[96];
    std::snprintf(column, sizeof column, " | %7.4f J, %4.0f W (cuBLAS %4.0f W), energy %.3f", measured.joules,
                  measured.joules / measured.ms * 1e3, measured.cublas_joules / measured.cublas_ms * 1e3,
                  measured.energy_ratio);
    return column;
}

void Contest::enqueue(const std::vector<hopper::Launch>& launches, double seconds) const {
    for (int i = 0; i < count(seconds); ++i) launches[static_cast<std::size_t>(i) % launches.size()](nullptr);
}

}  // namespace coda::bench
