#include "src/core/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "kernels/core/integers.h"

namespace coda {

namespace {

struct Interval {
    std::int32_t first = -1, last = -1;  // steps; -1: the schedule does not touch the buffer
    bool overlaps(const Interval& other) const {
        return first >= 0 && other.first >= 0 && first <= other.last && other.first <= last;
    }
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

bool alive_together(const Lifetimes& lifetimes, std::size_t a, std::size_t b) {
    return std::any_of(lifetimes.begin(), lifetimes.end(),
                       [&](const std::vector<Interval>& schedule) { return schedule[a].overlaps(schedule[b]); });
}

bool touched(const Lifetimes& lifetimes, std::size_t buffer) { return alive_together(lifetimes, buffer, buffer); }

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
    const Lifetimes lifetimes = find_lifetimes(buffers.size(), schedules);
    MemoryPlan plan;
    plan.offset.assign(buffers.size(), -1);

    std::vector<std::size_t> transient;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
        const Buffer& buffer = buffers.all()[b];
        if (!touched(lifetimes, b)) continue;
        if (buffer.lifetime == Lifetime::transient) {
            transient.push_back(b);
            continue;
        }
        plan.offset[b] = plan.persistent_bytes;
        plan.persistent_bytes += round_up(buffer.bytes, kBufferAlignment);
    }
    std::stable_sort(transient.begin(), transient.end(),
                     [&](std::size_t a, std::size_t b) { return buffers.all()[a].bytes > buffers.all()[b].bytes; });

    struct Placed {
        std::size_t buffer;
        std::int64_t begin, end;
    };
    std::vector<Placed> placed;  // by begin
    for (const std::size_t b : transient) {
        const std::int64_t bytes = round_up(buffers.all()[b].bytes, kBufferAlignment);
        std::int64_t begin = 0;
        for (const Placed& other : placed) {
            if (begin + bytes <= other.begin) break;
            if (other.end > begin && alive_together(lifetimes, b, other.buffer)) begin = other.end;
        }
        const Placed here{b, begin, begin + bytes};
        placed.insert(std::upper_bound(placed.begin(), placed.end(), here,
                                       [](const Placed& a, const Placed& c) { return a.begin < c.begin; }),
                      here);
        plan.offset[b] = plan.persistent_bytes + begin;
        plan.transient_bytes = std::max(plan.transient_bytes, here.end);
    }
    plan.live_bytes = peak_live_bytes(buffers, lifetimes, schedules);
    return plan;
}

}  // namespace coda
