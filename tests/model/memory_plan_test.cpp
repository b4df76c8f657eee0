#include "src/core/memory_plan.h"

#include <algorithm>

#include "src/core/hazards.h"
#include "src/model/schedules.h"
#include "tests/catch.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

struct Life {
    std::int64_t first = -1, last = -1;
};

Life life_of(const Schedule& schedule, BufferId buffer) {
    Life life;
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        for_each_operand(schedule[i].op, [&](const char*, const View& view, Access) {
            if (view.buffer != buffer) return;
            if (life.first < 0) life.first = static_cast<std::int64_t>(i);
            life.last = static_cast<std::int64_t>(i);
        });
    }
    return life;
}

}  // namespace

TEST_CASE("buffers that are alive together never share bytes, and all lie aligned in the arena") {
    const Recompute recompute = GENERATE(Recompute::none, Recompute::swiglu, Recompute::mlp);
    ModelRun run(tiny_model(), {.chunks = 3, .recompute = recompute}, kFloat32);
    const MemoryPlan plan = plan_and_check(run.schedules);
    const auto& buffers = run.schedules.buffers.all();
    for (std::size_t a = 0; a < buffers.size(); ++a) {
        if (plan.offset[a] < 0) continue;
        CHECK(plan.offset[a] % kBufferAlignment == 0);
        CHECK(plan.offset[a] + buffers[a].bytes <= plan.arena_bytes());
        for (std::size_t b = 0; b < a; ++b) {
            if (plan.offset[b] < 0) continue;
            const bool share = plan.offset[a] < plan.offset[b] + buffers[b].bytes &&
                               plan.offset[b] < plan.offset[a] + buffers[a].bytes;
            if (!share) continue;
            CHECK(buffers[a].lifetime == Lifetime::transient);
            CHECK(buffers[b].lifetime == Lifetime::transient);
            for (const Pass pass : run.schedules.passes()) {
                const Life la = life_of(run.schedules[pass], static_cast<BufferId>(a));
                const Life lb = life_of(run.schedules[pass], static_cast<BufferId>(b));
                INFO(buffers[a].name << " and " << buffers[b].name << " in " << name_of(run.schedules, pass));
                CHECK((la.first < 0 || lb.first < 0 || la.last < lb.first || lb.last < la.first));
            }
        }
    }
}

TEST_CASE("the plan of a 1B model is within 1% of what is alive at the worst step") {
    const ModelConfig model = llama1b_untied();
    ScheduleOptions options;
    options.precision = kMixedBf16;
    options.seq_len = 8192;
    options.micro_batch_size = 4;
    for (const Recompute recompute : {Recompute::none, Recompute::swiglu, Recompute::mlp}) {
        for (const std::int64_t chunks : {1, 8}) {
            options.recompute = recompute;
            options.lm_head_chunks = chunks;
            const MemoryPlan plan = plan_and_check(build_schedules(model, parameter_layout(model), options));
            CHECK(plan.transient_bytes >= plan.live_bytes);
            CHECK(static_cast<double>(plan.transient_bytes) <= 1.01 * static_cast<double>(plan.live_bytes));
        }
    }
}

TEST_CASE("with the head in chunks the tensor of all logits' exponentials never exists") {
    const ModelConfig model = llama1b_untied();
    ScheduleOptions options;
    options.precision = kMixedBf16;
    options.seq_len = 8192;
    options.micro_batch_size = 4;
    options.lm_head_chunks = 8;
    const Schedules schedules = build_schedules(model, parameter_layout(model), options);
    const std::int64_t whole = std::int64_t{32768} * 128256 * 2;
    std::int64_t found = 0;
    for (const Buffer& buffer : schedules.buffers.all()) {
        if (buffer.name == "exponentials") found = buffer.bytes;
    }
    CHECK(found == whole / 8);
}

TEST_CASE("a block's cache lies in the arena of a plan that uses it, and in no other") {
    BufferTable buffers;
    const BlockBuffers of_layer = BlockBuffers(buffers, kMixedBf16).of_layer(3);
    const View cache = of_layer.persistent("kv cache", MemorySegment::caches, DType::bf16, 64, 32);
    const View row = of_layer.activation("row", 1, 32);
    CHECK(buffers[cache.buffer].name == "layer 3 kv cache");
    const auto written = [](View view) {
        view.version = 1;
        return Zero{.out = view};
    };
    const Schedule decode{{Phase::forward, 3, "append", written(cache.row_slice(5, 1))}};
    const Schedule without{{Phase::forward, 3, "clear", written(row)}};
    const std::vector<const Schedule*> both = {&decode, &without}, one = {&without};

    const MemoryPlan with_cache = plan_memory(buffers, both);
    CHECK(with_cache.offset[static_cast<std::size_t>(cache.buffer)] == 0);
    CHECK(with_cache.persistent_bytes == round_up(cache.bytes(), kBufferAlignment));
    CHECK(find_hazards(decode, buffers, with_cache).empty());

    const MemoryPlan plain = plan_memory(buffers, one);
    CHECK(plain.offset[static_cast<std::size_t>(cache.buffer)] == -1);
    CHECK(plain.persistent_bytes == 0);
    CHECK(find_hazards(without, buffers, plain).empty());
    CHECK(find_hazards(decode, buffers, plain).size() == 1);  // a step that the plan does not know has no memory
}
