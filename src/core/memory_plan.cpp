#include "src/core/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/integers.h"
#include "src/core/occupancy.h"

namespace coda {

namespace {

struct Interval {
    std::int32_t first = -1, last = -1;  // steps; -1: the schedule does not touch the buffer
};

// lifetimes[schedule][buffer]
using Lifetimes = std::vector<std::vector<Interval>>;

Lifetimes find_lifetimes(std::size_t buffers, std::span<const Schedule* const> schedules) {
    Lifetimes lifetimes(schedules.size(), std::vector<Interval>(buffers));
    for (std::size_t s = 0; s < schedules.size(); ++s) {
        for (std::size_t step = 0; step < schedules[s]->size(); ++step) {
            for_each_operand((*schedules[s])[step].op, [&](const char*, const View& view, Access) {
                Interval& life = lifetimes[s][static_cast<std::size_t>(view.buffer)];
                if (life.first < 0) life.first = static_cast<std::int32_t>(step);
                life.last = static_cast<std::int32_t>(step);
            });
        }
    }
    return lifetimes;
}

/// When a buffer is alive, on one clock that counts the steps of all schedules, one schedule after the other.
std::vector<TimeSpan> life_of(const Lifetimes& lifetimes, std::span<const Schedule* const> schedules,
                              std::size_t buffer) {
    std::vector<TimeSpan> life;
    std::int32_t start = 0;
    for (std::size_t s = 0; s < schedules.size(); ++s) {
        const Interval& steps = lifetimes[s][buffer];
        if (steps.first >= 0) life.push_back({start + steps.first, start + steps.last});
        start += static_cast<std::int32_t>(schedules[s]->size());
    }
    return life;
}

std::int64_t peak_live_bytes(const BufferTable& buffers, const Lifetimes& lifetimes,
                             std::span<const Schedule* const> schedules) {
    std::int64_t peak = 0;
    for (std::size_t s = 0; s < lifetimes.size(); ++s) {
        std::vector<std::int64_t> change(schedules[s]->size() + 1, 0);
        for (std::size_t b = 0; b < buffers.size(); ++b) {
            const Interval& life = lifetimes[s][b];
            if (life.first < 0 || buffers.all()[b].lifetime == Lifetime::persistent) continue;
            change[static_cast<std::size_t>(life.first)] += buffers.all()[b].bytes;
            change[static_cast<std::size_t>(life.last) + 1] -= buffers.all()[b].bytes;
        }
        std::int64_t live = 0;
        for (const std::int64_t delta : change) peak = std::max(peak, live += delta);
    }
    return peak;
}

}  // namespace

MemoryPlan plan_memory(const BufferTable& buffers, std::span<const Schedule* const> schedules) {
    const double sum =
        std::accumulate(buffers.all().begin(), buffers.all().end(), 0.0,
                        [](double bytes, const Buffer& b) { return bytes + static_cast<double>(b.bytes); });
    require(sum < kMostBytes, "everything that the run computes", kTooLarge);
    const Lifetimes lifetimes = find_lifetimes(buffers.size(), schedules);
    MemoryPlan plan;
    plan.offset.assign(buffers.size(), -1);

    struct Transient {
        std::size_t buffer;
        std::vector<TimeSpan> life;
    };
    std::vector<Transient> transient;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
        const Buffer& buffer = buffers.all()[b];
        std::vector<TimeSpan> life = life_of(lifetimes, schedules, b);
        if (life.empty()) continue;
        if (buffer.lifetime == Lifetime::transient) {
            transient.push_back({b, std::move(life)});
            continue;
        }
        plan.offset[b] = plan.persistent_bytes;
        plan.persistent_bytes += round_up(buffer.bytes, kBufferAlignment);
    }
    std::stable_sort(transient.begin(), transient.end(), [&](const Transient& a, const Transient& b) {
        return buffers.all()[a.buffer].bytes > buffers.all()[b.buffer].bytes;
    });

    Occupancy arena(std::accumulate(schedules.begin(), schedules.end(), std::int64_t{0},
                                    [](std::int64_t steps, const Schedule* schedule) {
                                        return steps + static_cast<std::int64_t>(schedule->size());
                                    }));
    for (const Transient& each : transient) {
        const std::int64_t bytes = round_up(buffers.all()[each.buffer].bytes, kBufferAlignment);
        const std::int64_t begin = arena.first_free(each.life, bytes);
        arena.take(each.life, begin, begin + bytes);
        plan.offset[each.buffer] = plan.persistent_bytes + begin;
        plan.transient_bytes = std::max(plan.transient_bytes, begin + bytes);
    }
    plan.live_bytes = peak_live_bytes(buffers, lifetimes, schedules);
    return plan;
}

}  // namespace coda
