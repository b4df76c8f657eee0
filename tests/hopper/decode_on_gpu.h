// A decode pass as an op list (tests/kernels/decode_list.h) on the GPU, by the fused kernel.
#pragma once

#include <cmath>
#include <functional>

#include "kernels/cpu/run.h"
#include "kernels/hopper/decode/launch.h"
#include "kernels/hopper/decode/plan/lower.h"
#include "kernels/hopper/sm90/device.h"
#include "tests/hopper/gpu_copy.h"
#include "tests/kernels/decode_list.h"

namespace coda::test {

/// The list on the GPU, whose plan may be changed. run() makes tokens and brings the buffers back.
struct OnGpu {
    DecodeList& list;
    GpuCopy copy;
    hopper::decode::FusedDecode fused;

    explicit OnGpu(DecodeList& given, const hopper::decode::LaunchOptions& options = {}, int grid = 0,
                   const std::function<void(hopper::decode::DecodePlan&)>& change = {})
        : list(given),
          copy(given.buffers, given.views()),
          fused(changed(
                    hopper::decode::lower(given.schedule, copy.memory(), grid == 0 ? hopper::multiprocessors() : grid),
                    change),
                options) {}

    std::vector<int> run(const std::vector<int>& launches) {
        std::vector<int> all;
        for (const int steps : launches) {
            fused.launch(steps, nullptr);
            fused.finish(nullptr);
            for (const std::int32_t token : fused.made(steps)) all.push_back(token);
        }
        copy.download();
        return all;
    }

  private:
    static hopper::decode::DecodePlan changed(hopper::decode::DecodePlan plan,
                                              const std::function<void(hopper::decode::DecodePlan&)>& change) {
        if (change) change(plan);
        return plan;
    }
};

inline void run_on_cpu(DecodeList& list, int steps) {
    for (int t = 0; t < steps; ++t)
        for (const Step& step : list.schedule) cpu::run(step.op, list.buffers.memory());
}

inline std::vector<double> logits_of(const DecodeList& list, std::int64_t row) {
    std::vector<double> values;
    for (std::int64_t j = 0; j < list.logits.cols; ++j) values.push_back(list.buffers.get(list.logits, row, j));
    return values;
}

/// Largest difference over the largest magnitude.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
    double most = 0, scale = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return INFINITY;
        most = std::max(most, std::abs(a[i] - b[i]));
        scale = std::max(scale, std::abs(b[i]));
    }
    return most / scale;
}

/// Of logits against the op list's, with matrices in bf16.
inline constexpr double kLogitTolerance = 0.04;

inline constexpr ChoiceOptions kGreedy{.temperature = 0};

/// Lengths that end in every part of a block and a split; sequence 1 is idle where there are several.
inline int length_of(const DecodeSizes& sizes, std::int64_t row) {
    constexpr int kLengths[] = {1, 0, 2, 64, 65, 129, 257, 290, 3, 130, 0, 66, 200, 1, 33, 128};
    static_assert(std::size(kLengths) == hopper::decode::kMaxBatch);
    if (row == 4 && sizes.context > 4500) return 4400;
    if ((row == 7 || row == 12) && sizes.context >= 700) return static_cast<int>(sizes.context) - 60;  // splits
    return kLengths[row];
}

inline void set_rows(DecodeList& list, const ChoiceOptions& options = kGreedy) {
    for (std::int64_t b = 0; b < list.sizes.batch; ++b)
        list.set_row(b, {.length = length_of(list.sizes, b), .choice = options}, static_cast<int>(7 + 5 * b));
}

}  // namespace coda::test
