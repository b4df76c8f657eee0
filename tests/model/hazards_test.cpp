// The hazard checker finds every ordering hazard of CODA's in-place schedule when it is planted, and none in what the
// builder makes.
#include <algorithm>
#include <functional>

#include "src/core/hazards.h"
#include "src/model/schedules.h"
#include "tests/catch.h"
#include "tests/model/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

struct Built {
    Schedules schedules;
    MemoryPlan plan;
};

Built build(Recompute recompute = Recompute::none, std::int64_t chunks = 2, bool tied = false) {
    ModelConfig model = tiny_model();
    model.tie_word_embeddings = tied;
    ScheduleOptions options;
    options.precision = kMixedBf16;
    options.seq_len = 6;
    options.micro_batch_size = 2;
    options.lm_head_chunks = chunks;
    options.recompute = recompute;
    options.document_mask = true;
    Built built;
    built.schedules = build_schedules(model, parameter_layout(model), options);
    built.plan = plan_and_check(built.schedules);
    return built;
}

std::size_t index_of(const Schedule& schedule, const std::string& name, int layer) {
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        if (schedule[i].name == name && schedule[i].layer == layer) return i;
    }
    throw Error(text("no step ", name));
}

/// Moves the step `name` of `layer` right after (or before) the step `other`.
void move_behind(Schedule& schedule, const std::string& name, const std::string& other, int layer) {
    const std::size_t from = index_of(schedule, name, layer);
    const Step step = schedule[from];
    schedule.erase(schedule.begin() + static_cast<long>(from));
    schedule.insert(schedule.begin() + static_cast<long>(index_of(schedule, other, layer) + 1), step);
}
void move_before(Schedule& schedule, const std::string& name, const std::string& other, int layer) {
    const std::size_t from = index_of(schedule, name, layer);
    const Step step = schedule[from];
    schedule.erase(schedule.begin() + static_cast<long>(from));
    schedule.insert(schedule.begin() + static_cast<long>(index_of(schedule, other, layer)), step);
}
void move_to_end(Schedule& schedule, const std::string& name, int layer) {
    const std::size_t from = index_of(schedule, name, layer);
    const Step step = schedule[from];
    schedule.erase(schedule.begin() + static_cast<long>(from));
    schedule.push_back(step);
}

/// Hazards of a schedule (the first micro-batch's) after `change`, each buffer in memory of its own, so that only the
/// order matters.
std::vector<std::string> hazards_after(const std::function<void(Schedule&)>& change,
                                       Recompute recompute = Recompute::none,
                                       Schedule Schedules::*pass = &Schedules::first, bool placed = false) {
    Built built = build(recompute);
    const MemoryPlan plan = placed ? built.plan : without_sharing(built.schedules, built.plan);
    Schedule& schedule = built.schedules.*pass;
    REQUIRE(find_hazards(schedule, built.schedules.buffers, plan).empty());
    change(schedule);
    return find_hazards(schedule, built.schedules.buffers, plan);
}

bool mentions(const std::vector<std::string>& hazards, const std::vector<std::string>& words) {
    return std::any_of(hazards.begin(), hazards.end(), [&](const std::string& hazard) {
        return std::all_of(words.begin(), words.end(),
                           [&](const std::string& word) { return hazard.find(word) != std::string::npos; });
    });
}

}  // namespace

TEST_CASE("what the builder makes has no hazard, placed or apart") {
    for (const bool tied : {false, true}) {
        for (const Recompute recompute : {Recompute::none, Recompute::swiglu, Recompute::mlp}) {
            for (const std::int64_t chunks : {1, 2, 5}) CHECK_NOTHROW(build(recompute, chunks, tied));
        }
    }
}

TEST_CASE("the down weight gradient after dx was updated in place (B4 after B5)") {
    const auto hazards =
        hazards_after([](Schedule& schedule) { move_behind(schedule, "down_wgrad", "gate_up_dgrad", 1); });
    CHECK(mentions(hazards, {"'down_wgrad' of layer 1", "operand dy", "'dx'", "'gate_up_dgrad' of layer 1"}));
}

TEST_CASE("the output projection's weight gradient after dx was updated in place (B8 after B11)") {
    const auto hazards =
        hazards_after([](Schedule& schedule) { move_behind(schedule, "attn_out_wgrad", "qkv_dgrad", 0); });
    CHECK(mentions(hazards, {"'attn_out_wgrad' of layer 0", "operand dy", "'dx'", "'qkv_dgrad' of layer 0"}));
}

TEST_CASE("a dgrad before the op that makes its dx (B3, B7)") {
    CHECK(mentions(hazards_after([](Schedule& s) { move_behind(s, "down_dgrad", "gate_up_dgrad", 0); }),
                   {"'gate_up_dgrad' of layer 0", "operand a"}));
    CHECK(mentions(hazards_after([](Schedule& s) { move_before(s, "attn_out_dgrad", "gate_up_dgrad", 0); }),
                   {"'attn_out_dgrad' of layer 0", "operand a", "'dx'"}));
}

TEST_CASE("the saved gate/up read after its gradient was stored over it") {
    // The recomputing step is the last one that may write z before down_dgrad turns it into dz in place.
    const auto hazards = hazards_after(
        [](Schedule& schedule) { move_behind(schedule, "gate_up_recompute", "down_dgrad", 1); }, Recompute::mlp);
    CHECK(mentions(hazards, {"'down_dgrad' of layer 1", "operand z"}));
}

// Each layer has buffers of its own, in memory that they share.
TEST_CASE("a gradient in another layer's memory: a weight gradient after the next layer has taken what it reads") {
    const auto at_end = [](const char* name, Recompute recompute) {
        return hazards_after([=](Schedule& s) { move_to_end(s, name, 1); }, recompute, &Schedules::first, true);
    };
    CHECK(mentions(at_end("qkv_wgrad", Recompute::none),
                   {"'qkv_wgrad' of layer 1", "operand dy", "'layer 1 qkv gradient'"}));
    CHECK(mentions(at_end("gate_up_wgrad", Recompute::mlp),
                   {"'gate_up_wgrad' of layer 1", "operand dy", "'layer 1 gate/up'"}));
    CHECK(mentions(at_end("down_wgrad", Recompute::swiglu),
                   {"'down_wgrad' of layer 1", "operand x", "'layer 1 recomputed mlp activation'"}));
}

TEST_CASE("the head's exponentials read before they are there, and before they are a gradient") {
    const auto before = [](const char* name, const char* other) {
        return hazards_after([=](Schedule& s) { move_before(s, name, other, -1); });
    };
    CHECK(mentions(before("loss", "logits"), {"'loss'", "operand exponentials", "'exponentials'"}));
    CHECK(mentions(before("loss", "logits"), {"'loss'", "operand sums", "nothing has written"}));
    CHECK(mentions(before("head_dgrad", "loss"), {"'head_dgrad'", "operand a", "'exponentials'", "'logits'"}));
    CHECK(mentions(before("head_dgrad", "loss"), {"'head_dgrad'", "operand scale"}));
    CHECK(mentions(before("head_dgrad", "loss"), {"'head_dgrad'", "operand dot"}));
    CHECK(mentions(before("head_wgrad", "loss"), {"'head_wgrad'", "operand dy", "'exponentials'", "'logits'"}));
    CHECK(mentions(before("logits", "target_logit"), {"'logits'", "operand target_logit", "nothing has written"}));
}

TEST_CASE("what a chunk still needs overwritten by the next chunk") {
    // A step of the first chunk after a step of the second one.
    const auto late = [](const std::string& name, const std::string& other,
                         Schedule Schedules::*pass = &Schedules::first) {
        const auto move = [&](Schedule& schedule) {
            const std::size_t from = index_of(schedule, name, -1);
            const Step step = schedule[from];
            std::size_t at = index_of(schedule, other, -1) + 1;
            while (schedule[at].name != other) ++at;
            schedule.insert(schedule.begin() + static_cast<long>(at + 1), step);
            schedule.erase(schedule.begin() + static_cast<long>(from));
        };
        return hazards_after(move, Recompute::none, pass);
    };
    CHECK(mentions(late("head_wgrad", "loss"), {"'head_wgrad'", "operand dy", "'exponentials'", "'loss'"}));
    CHECK(mentions(late("head_wgrad", "logits"), {"'head_wgrad'", "operand dy", "'exponentials'", "'logits'"}));
    for (const auto pass : {&Schedules::first, &Schedules::evaluate}) {
        CHECK(mentions(late("loss", "logits", pass), {"'loss'", "operand sums", "'sums of exponentials'", "'logits'"}));
    }
}

TEST_CASE("the attention statistic finished before its parts exist") {
    CHECK(mentions(hazards_after([](Schedule& s) { move_before(s, "attention_dot", "attention_backward", 1); }),
                   {"'attention_dot' of layer 1", "operand partials"}));
}

TEST_CASE("a later chunk that overwrites what an earlier chunk added") {
    const auto hazards = hazards_after([](Schedule& schedule) {
        int seen = 0;
        for (Step& step : schedule) {
            if (std::string(step.name) == "head_wgrad" && ++seen == 2) {
                std::get<WeightGradient>(step.op).grad.beta = Beta::overwrite;
            }
        }
    });
    CHECK(mentions(hazards, {"'head_wgrad'", "operand grad", "overwrites", "nothing has read"}));
}

TEST_CASE("a read before any write") {
    const auto hazards = hazards_after([](Schedule& schedule) {
        const std::size_t at = index_of(schedule, "rstd_mlp", 0);
        schedule.erase(schedule.begin() + static_cast<long>(at));
    });
    CHECK(mentions(hazards, {"'gate_up' of layer 0", "operand rstd", "nothing has written"}));
}

TEST_CASE("two buffers that are alive together in the same bytes") {
    Built built = build();
    // x of layer 0 is read again in the backward pass; the exponentials come in between.
    BufferId x = kNoBuffer, exponentials = kNoBuffer;
    for (std::size_t b = 0; b < built.schedules.buffers.size(); ++b) {
        if (built.schedules.buffers.all()[b].name == "embedded x") x = static_cast<BufferId>(b);
        if (built.schedules.buffers.all()[b].name == "exponentials") exponentials = static_cast<BufferId>(b);
    }
    built.plan.offset[static_cast<std::size_t>(x)] = built.plan.offset[static_cast<std::size_t>(exponentials)];
    const auto hazards = find_hazards(built.schedules.first, built.schedules.buffers, built.plan);
    CHECK(mentions(hazards, {"'embedded x'", "its bytes were overwritten with"}));
    CHECK_THROWS_AS(require_no_hazards("first", built.schedules.first, built.schedules.buffers, built.plan), Error);
}

TEST_CASE("an op on overlapping operands that does not work in place, and views outside their buffer") {
    BufferTable buffers;
    View a = buffers.add("a", MemorySegment::activations, Lifetime::persistent, DType::f32, 4, 4);
    const View w = buffers.add("w", MemorySegment::weights, Lifetime::persistent, DType::f32, 4, 4);
    View out = a;
    out.version = 1;
    const Schedule in_place{
        {Phase::forward, -1, "product", Linear{.a = a, .w = w, .rstd = {}, .out = {out, Beta::overwrite}}}};
    const Schedule* schedules[] = {&in_place};
    const MemoryPlan plan = plan_memory(buffers, schedules);
    CHECK(mentions(find_hazards(in_place, buffers, plan), {"'product'", "operand out", "operand a", "in place"}));

    View outside = w;
    outside.rows = 5;
    const Schedule beyond{{Phase::forward, -1, "product", Zero{.out = outside}}};
    CHECK(mentions(find_hazards(beyond, buffers, plan), {"'product'", "lies outside buffer 'w'"}));
}

TEST_CASE("SwiGLU's backward may work on z itself, but not on a shifted view of it") {
    BufferTable buffers;
    const auto add = [&](const char* name, std::int64_t rows, std::int64_t cols) {
        return buffers.add(name, MemorySegment::activations, Lifetime::persistent, DType::f32, rows, cols);
    };
    const View a = add("a", 4, 4), w = add("w", 4, 8), z = add("z", 5, 16), y = add("y", 4, 8), dot = add("dot", 1, 4);
    const auto hazards_with = [&](const View& dz) {
        View written = dz;
        written.version = 1;
        const Schedule schedule{{Phase::backward, 0, "down_dgrad",
                                 LinearSwigluBackward{.a = a,
                                                      .w = w,
                                                      .z = z.row_slice(0, 4),
                                                      .z_scale = {},
                                                      .rstd = {},
                                                      .dz = written,
                                                      .y = y,
                                                      .dot = dot,
                                                      .tile = 128}}};
        const Schedule* schedules[] = {&schedule};
        return find_hazards(schedule, buffers, plan_memory(buffers, schedules));
    };
    CHECK(hazards_with(z.row_slice(0, 4)).empty());
    CHECK(mentions(hazards_with(z.row_slice(1, 4)), {"operand dz", "operand z", "in place"}));
}

TEST_CASE("CentreColumns may work in place on a matrix and a bias, but not on shifted views") {
    BufferTable buffers;
    const View vector = buffers.add("bias", MemorySegment::weights, Lifetime::persistent, DType::f32, 1, 6);
    const View matrix = buffers.add("matrix", MemorySegment::weights, Lifetime::persistent, DType::f32, 6, 4);
    const auto hazards_with = [&](const View& from, const View& to, const View& bias, const View& bias_to) {
        View written = to, bias_written = bias_to;
        written.version = bias_written.version = 1;
        const Schedule schedule{
            {Phase::backward, 0, "down_centre",
             CentreColumns{.matrix = from, .out = written, .bias = bias, .bias_out = bias_written}}};
        const Schedule* schedules[] = {&schedule};
        return find_hazards(schedule, buffers, plan_memory(buffers, schedules));
    };
    CHECK(hazards_with(matrix, matrix, vector, vector).empty());
    View shifted = vector, cut = vector;
    shifted.cols = cut.cols = 5;
    shifted.offset += size_of(DType::f32);
    const View head = matrix.row_slice(0, 5), tail = matrix.row_slice(1, 5);
    CHECK(mentions(hazards_with(head, tail, cut, cut), {"operand out", "operand matrix", "in place"}));
    CHECK(mentions(hazards_with(head, head, cut, shifted), {"operand bias_out", "operand bias", "in place"}));
}
