#include "src/model/schedules.h"

#include <algorithm>
#include <utility>

#include "kernels/core/error.h"
#include "src/core/hazards.h"
#include "src/model/generation.h"
#include "src/model/model.h"
#include "src/model/scratch.h"
#include "src/model/square_sums.h"
#include "src/model/update.h"

namespace coda {

namespace {

void add_segments(const BlockBuffers& buffers, const ParameterLayout& layout, const Division& division, Moments moments,
                  HostViews& host) {
    const Precision& precision = buffers.precision();
    const DType moment = moments == Moments::bf16 ? DType::bf16 : precision.master;
    const std::int64_t n = layout.count, own = division.own_count(), norms = n - layout.matrix_count;
    host.master = buffers.persistent("master weights", MemorySegment::weights, precision.master, 1, own);
    host.norms = part_of(host.master, division.place_of(layout.matrix_count, norms), norms);
    host.first_norm = layout.matrix_count;
    host.working = buffers.persistent("working weights", MemorySegment::weights, precision.storage, 1, n);
    host.gradient = buffers.persistent("gradients", MemorySegment::gradients, precision.gradient, 1, n);
    if (division.divides()) {
        const std::int64_t sums = SquareSums(division).count();
        host.squares = buffers.persistent("sums of squares", MemorySegment::gradients, DType::f64, 1, sums);
    }
    host.m = buffers.persistent("first moments", MemorySegment::optimizer, moment, 1, own);
    host.v = buffers.persistent("second moments", MemorySegment::optimizer, moment, 1, own);
}

void add_inputs(const BlockBuffers& buffers, const ModelShape& s, std::int64_t context, bool document_mask,
                HostViews& host) {
    const DType statistic = buffers.precision().statistic;
    const auto input = [&](const char* name, DType dtype, std::int64_t rows, std::int64_t cols) {
        return buffers.persistent(name, MemorySegment::inputs, dtype, rows, cols);
    };
    host.tokens = input("tokens", DType::i32, 1, s.tokens);
    host.targets = input("targets", DType::i32, 1, s.tokens);
    host.positions = input("positions", DType::i32, 1, s.tokens);
    host.documents = document_mask;
    host.window = s.window_within(s.seq_len);
    if (document_mask || host.window > 0) host.doc_start = input("first keys", DType::i32, 1, s.tokens);
    host.rope = input("rope table", statistic, std::max(s.seq_len, context), s.head_dim);
    host.alpha = input("alpha", statistic, 1, 1);
    host.embedded = input("embedded tokens", buffers.precision().storage, s.tokens, s.width);
    host.lr = input("learning rate", statistic, 1, 1);
    host.correction1 = input("bias correction 1", statistic, 1, 1);
    host.correction2 = input("bias correction 2", statistic, 1, 1);
    host.step = input("step", DType::i32, 1, 1);
    host.drop_above = input("gradient norm to drop above", statistic, 1, 1);
    host.norm = input("gradient norm", statistic, 1, 1);
    host.clip = input("clip factor", statistic, 1, 1);
    host.skip = input("skip flag", DType::i32, 1, 1);
}

void add_embedding(const BlockBuffers& buffers, const ParameterLayout& layout, HostViews& host) {
    const PackedTensor& table = layout.embedding_table();
    host.embedding =
        buffers.persistent("embedding", MemorySegment::weights, buffers.precision().storage, table.rows, table.cols);
}

/// Which layers train with FP8 factors.
F8Layers f8_layers(const PrecisionConfig& precision, std::size_t layers) {
    if (!precision.has_fp8) return {};
    return {.first = static_cast<int>(precision.bf16_first_layers),
            .end = static_cast<int>(layers) - static_cast<int>(precision.bf16_last_layers)};
}

/// `exchanges`: of a rank's last micro-batch.
Schedule micro_batch_schedule(Model model, Beta beta, const HostViews& host, Exchanges* exchanges) {
    Schedule schedule;
    StepList step(schedule);
    build_forward(model, step);
    model.head.train(step, model.batch, model.out(), model.dx, beta, model.layers.back().end());
    build_backward(model, step, beta);
    if (exchanges) exchange_gradients(*exchanges, host.gradient, host.squares, schedule);
    return schedule;
}

Schedule evaluate_schedule(Model model) {
    Schedule schedule;
    StepList step(schedule);
    model.keep_nothing();
    build_forward(model, step);
    model.head.evaluate(step, model.batch, model.out());
    return schedule;
}

/// `arriving`: what the update leaves on its way to all ranks.
Schedule update_schedule(const ParameterLayout& layout, const ScheduleOptions& options, const HostViews& host,
                         const Weights& weights, Exchanges& exchanges, std::vector<Exchanges::UnderWay>& arriving) {
    Schedule schedule;
    StepList step(schedule);
    arriving = receive_where_read(build_update(layout, options, host, weights, exchanges, step), schedule);
    return schedule;
}

Schedule scales_schedule(const HostViews& host, const Weights& weights, Exchanges& exchanges) {
    Schedule schedule;
    StepList step(schedule);
    build_renewal(host, weights, exchanges, step);
    return schedule;
}

Schedule derive_schedule(const HostViews& host, const Weights& weights) {
    Schedule schedule;
    StepList step(schedule);
    weights.derive(step, host.segments());
    return schedule;
}

}  // namespace

std::string name_of(const Schedules& schedules, Pass pass) {
    switch (pass) {
        case Pass::first: return "first micro-batch";
        case Pass::further: return "further micro-batch";
        case Pass::last: return "last micro-batch";
        case Pass::update: return "update";
        case Pass::scales: return "scales";
        case Pass::derive: return "derived weights";
        case Pass::evaluate: return "evaluate";
        case Pass::decode: return "decode";
        case Pass::prefill: break;
    }
    return text("prefill of ", prefill_lengths(schedules.host.cache.context).at(prefill_index(pass)));
}

const Schedule& Schedules::operator[](Pass pass) const {
    switch (pass) {
        case Pass::first: return first;
        case Pass::further: return further;
        case Pass::last: return last;
        case Pass::update: return update;
        case Pass::scales: return scales;
        case Pass::derive: return derive;
        case Pass::evaluate: return evaluate;
        case Pass::decode: return decode;
        case Pass::prefill: break;
    }
    static const Schedule none;
    return prefill_index(pass) < prefill.size() ? prefill[prefill_index(pass)] : none;
}

Schedule& Schedules::operator[](Pass pass) { return const_cast<Schedule&>(std::as_const(*this)[pass]); }

std::vector<Pass> Schedules::passes() const {
    std::vector<Pass> passes;
    std::copy_if(std::begin(kPasses), std::end(kPasses), std::back_inserter(passes),
                 [&](Pass pass) { return has(pass); });
    return passes;
}

std::vector<const Schedule*> Schedules::all() const {
    std::vector<const Schedule*> schedules;
    for (const Pass pass : passes()) schedules.push_back(&(*this)[pass]);
    return schedules;
}

bool Schedules::uses(const View& view) const {
    bool found = false;
    for (const Schedule* schedule : all()) {
        for (const Step& step : *schedule) {
            for_each_operand(step.op, [&](const char*, const View& operand, Access) {
                found = found || (view && operand.buffer == view.buffer);
            });
        }
    }
    return found;
}

ScheduleOptions schedule_options(const Config& config, const Precision& precision, RankOf rank) {
    return {.precision = precision,
            .seq_len = config.training.seq_len,
            .micro_batch_size = config.training.micro_batch_size,
            .lm_head_chunks = config.training.lm_head_chunks,
            .recompute = config.training.recompute,
            .document_mask = config.data.document_mask,
            .max_grad_norm = config.training.max_grad_norm,
            .optimizer = config.optimizer,
            .seed = config.training.seed,
            .generation = {.batch = 1, .context = config.training.seq_len},
            .gemms = config.precision,
            .rank = rank,
            .micro_batches = config.training.grad_accumulation_steps / rank.ranks};
}

Schedules build_schedules(const ModelConfig& model, const ParameterLayout& layout, const ScheduleOptions& options,
                          PassSet passes) {
    Schedules schedules;
    HostViews& host = schedules.host;
    const BlockBuffers buffers(schedules.buffers, options.precision);
    const ModelShape shape = model_shape(model, options.seq_len, options.micro_batch_size);
    const Division& division = schedules.division = Division(layout, options.rank.rank, options.rank.ranks);
    add_segments(buffers, layout, division, options.optimizer.moments, host);
    add_inputs(buffers, shape, options.generation.context, options.document_mask, host);
    const bool generates = passes.has(Pass::decode) || passes.has(Pass::prefill);
    const F8Layers f8 = passes.has(Pass::first) ? f8_layers(options.gemms, layout.layers.size()) : F8Layers{};
    const std::vector<std::size_t>& int4 = options.generation.int4;
    require(int4.empty() || !f8, "a plan that trains in FP8 keeps no 4-bit integers");
    const WeightForms forms{.f8 = f8,
                            .int4 = int4,
                            .own_copies = (f8 && !generates && !division.divides()) || !int4.empty(),
                            .own_norms = !passes.has(Pass::first) && !passes.has(Pass::update)};
    const Weights& weights = schedules.weights = {layout.matrices, host.segments(), forms, buffers};
    host.f8 = weights.views();
    const bool has_master = passes.has(Pass::update) && !division.divides();
    Exchanges exchanges(division, schedules.buffers, schedules.transfers);
    if (generates || division.divides()) add_embedding(buffers, layout, host);
    const Model blocks = make_model(
        layout, shape, options, host, weights,
        embedding_rows(layout, weights, host.master, has_master, division.divides() ? host.embedding : host.embedded),
        buffers);
    const HeadBlock::Results& results = blocks.head.results();
    host.loss = results.loss;
    host.losses = results.losses;
    host.val_loss = results.val_loss;

    const auto micro_batch = [&](Beta beta, Exchanges* exchanged) {
        return micro_batch_schedule(blocks, beta, host, exchanged);
    };
    if (passes.has(Pass::first)) schedules.first = micro_batch(Beta::overwrite, nullptr);
    if (passes.has(Pass::further)) schedules.further = micro_batch(Beta::accumulate, nullptr);
    if (passes.has(Pass::last) && division.divides()) {
        schedules.last = micro_batch(options.micro_batches > 1 ? Beta::accumulate : Beta::overwrite, &exchanges);
    }
    if (passes.has(Pass::scales) && weights.f8()) schedules.scales = scales_schedule(host, weights, exchanges);
    if (!passes.empty()) schedules.derive = derive_schedule(host, weights);
    if (passes.has(Pass::evaluate)) schedules.evaluate = evaluate_schedule(blocks);
    if (passes.has(Pass::update)) {
        std::vector<Exchanges::UnderWay> arriving;
        schedules.update = update_schedule(layout, options, host, weights, exchanges, arriving);
        // `further` and, behind it, `last` come after a pass that waits.
        Schedule& begins_step = options.micro_batches > 1 ? schedules.first : schedules.last;
        for (Schedule* pass : {&begins_step, &schedules.evaluate}) receive_where_read(arriving, *pass);
    }
    if (generates) add_generation(model, layout, options, has_master, schedules);
    std::vector<Schedule*> all;
    for (const Pass pass : schedules.passes()) all.push_back(&schedules[pass]);
    add_scratch(schedules.buffers, all);
    return schedules;
}

MemoryPlan plan_and_check(const Schedules& schedules) {
    MemoryPlan plan = plan_memory(schedules.buffers, schedules.all());
    for (const Pass pass : schedules.passes()) {
        require_no_hazards(name_of(schedules, pass), schedules[pass], schedules.buffers, plan);
    }
    return plan;
}

}  // namespace coda
