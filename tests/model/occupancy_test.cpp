// The arena's places equal the result of the plain search over all buffers, and finding them takes time in proportion
// to the layers.
#include "src/core/occupancy.h"

#include <algorithm>
#include <ctime>
#include <random>

#include "src/core/hazards.h"
#include "src/core/memory_plan.h"
#include "src/model/schedules.h"
#include "tests/catch.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

using Life = std::vector<TimeSpan>;

bool alive_together(const Life& a, const Life& b) {
    return std::any_of(a.begin(), a.end(), [&](const TimeSpan& x) {
        return std::any_of(b.begin(), b.end(),
                           [&](const TimeSpan& y) { return x.first <= y.last && y.first <= x.last; });
    });
}

struct Placed {
    Life life;
    std::int64_t begin, end;
};

/// The lowest offset that is free, found by trying 0 and the end of every range that is taken.
std::int64_t naive_place(const std::vector<Placed>& placed, const Life& life, std::int64_t bytes) {
    std::vector<std::int64_t> candidates = {0};
    for (const Placed& other : placed) candidates.push_back(other.end);
    std::sort(candidates.begin(), candidates.end());
    for (const std::int64_t begin : candidates) {
        const bool taken = std::any_of(placed.begin(), placed.end(), [&](const Placed& other) {
            return other.begin < begin + bytes && begin < other.end && alive_together(life, other.life);
        });
        if (!taken) return begin;
    }
    throw Error("the end of the last range is free");
}

/// Steps in which a buffer is touched, of all schedules on one clock.
Life life_of(const Schedules& schedules, BufferId buffer) {
    Life life;
    std::int32_t start = 0;
    for (const Schedule* schedule : schedules.all()) {
        TimeSpan span{-1, -1};
        for (std::size_t i = 0; i < schedule->size(); ++i) {
            for_each_operand((*schedule)[i].op, [&](const char*, const View& view, Access) {
                if (view.buffer != buffer) return;
                span.last = start + static_cast<std::int32_t>(i);
                if (span.first < 0) span.first = span.last;
            });
        }
        if (span.first >= 0) life.push_back(span);
        start += static_cast<std::int32_t>(schedule->size());
    }
    return life;
}

Schedules schedules_of_layers(std::int64_t layers, Recompute recompute = Recompute::none) {
    ModelConfig model = tiny_model();
    model.num_hidden_layers = layers;
    ScheduleOptions options;
    options.precision = kFloat32;
    options.seq_len = 8;
    options.micro_batch_size = 2;
    options.recompute = recompute;
    return build_schedules(model, parameter_layout(model), options, passes_of(Mode::train));
}

/// Least of three, in seconds of this thread's own time.
template <class Fn>
double seconds_of(const Fn& fn) {
    double least = 1e30;
    for (int repeat = 0; repeat < 3; ++repeat) {
        timespec before{}, after{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
        fn();
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
        least = std::min(least, static_cast<double>(after.tv_sec - before.tv_sec) +
                                    1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec));
    }
    return least;
}

}  // namespace

TEST_CASE("random lives lie at the lowest offsets that are free for them") {
    std::mt19937 random(17);
    const auto number = [&](int from, int to) { return std::uniform_int_distribution(from, to)(random); };
    for (int round = 0; round < 200; ++round) {
        const int times = number(1, 40);
        Occupancy arena(times);
        std::vector<Placed> placed;
        for (int i = 0; i < 60; ++i) {
            Life life;
            for (int spans = number(1, 3), from = 0; spans > 0 && from < times; --spans) {
                const int first = number(from, times - 1), last = number(first, times - 1);
                life.push_back({first, last});
                from = last + 1;
            }
            const std::int64_t bytes = number(0, 5);
            const std::int64_t begin = arena.first_free(life, bytes);
            REQUIRE(begin == naive_place(placed, life, bytes));
            arena.take(life, begin, begin + bytes);
            placed.push_back({life, begin, begin + bytes});
        }
    }
}

TEST_CASE("the plan of a model equals the result of the plain search over all buffers") {
    const Recompute recompute = GENERATE(Recompute::none, Recompute::swiglu, Recompute::mlp);
    const Schedules schedules = schedules_of_layers(7, recompute);
    const MemoryPlan plan = plan_and_check(schedules);
    const auto& buffers = schedules.buffers.all();
    std::vector<std::size_t> order;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
        if (buffers[b].lifetime == Lifetime::transient && plan.offset[b] >= 0) order.push_back(b);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return buffers[a].bytes > buffers[b].bytes; });
    CHECK(order.size() > 50);
    std::vector<Placed> placed;
    for (const std::size_t b : order) {
        const Life life = life_of(schedules, static_cast<BufferId>(b));
        const std::int64_t bytes = round_up(buffers[b].bytes, kBufferAlignment);
        const std::int64_t begin = naive_place(placed, life, bytes);
        INFO(buffers[b].name);
        REQUIRE(plan.offset[b] == plan.persistent_bytes + begin);
        placed.push_back({life, begin, begin + bytes});
    }
}

// Eight times the layers take 64 times as long where something looks at all pairs of layers, and 8 to 12 times where
// nothing does.
TEST_CASE("schedules and their plan and hazards take time in proportion to the layers") {
    struct Seconds {
        double schedules, plan, hazards;
    };
    const auto measured = [](std::int64_t layers) {
        const Schedules schedules = schedules_of_layers(layers);
        const MemoryPlan plan = plan_memory(schedules.buffers, schedules.all());
        return Seconds{seconds_of([&] { schedules_of_layers(layers); }),
                       seconds_of([&] { plan_memory(schedules.buffers, schedules.all()); }),
                       seconds_of([&] { find_hazards(schedules.first, schedules.buffers, plan); })};
    };
    constexpr double kMost = 24;
    // On a busy machine caches are shared: of up to four attempts the best one counts.
    Seconds least{1e30, 1e30, 1e30};
    for (int attempt = 0; attempt < 4 && std::max({least.schedules, least.plan, least.hazards}) >= kMost; ++attempt) {
        const Seconds few = measured(500), many = measured(4000);
        least.schedules = std::min(least.schedules, many.schedules / few.schedules);
        least.plan = std::min(least.plan, many.plan / few.plan);
        least.hazards = std::min(least.hazards, many.hazards / few.hazards);
    }
    INFO("8 times the layers take " << least.schedules << ", " << least.plan << " and " << least.hazards
                                    << " times as long");
    CHECK(least.schedules < kMost);
    CHECK(least.plan < kMost);
    CHECK(least.hazards < kMost);
}
