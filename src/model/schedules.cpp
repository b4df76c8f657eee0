#include "src/model/schedules.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/core/integers.h"
#include "src/core/hazards.h"
#include "src/model/activations.h"

namespace coda {

namespace {

/// Allocates every buffer of a run and keeps the views, all at value 0.
class Allocation {
  public:
    Allocation(const ModelConfig& model, const ParameterLayout& layout, const ScheduleOptions& options)
        : layout_(layout), precision_(options.precision) {
        const std::int64_t hd = model.head_dim, heads = model.num_attention_heads, kv = model.num_key_value_heads;
        batch.options = options;
        batch.shape = {.tokens = options.seq_len * options.micro_batch_size,
                       .seq_len = options.seq_len,
                       .width = model.hidden_size,
                       .ffn = model.intermediate_size,
                       .heads = heads,
                       .kv_heads = kv,
                       .head_dim = hd,
                       .qkv_width = (heads + 2 * kv) * hd,
                       .out_width = heads * hd,
                       .rotated = (heads + kv) * hd,
                       .vocab = model.vocab_size,
                       .padded_vocab = layout.padded_vocab,
                       .eps = model.rms_norm_eps};
        add_parameters(options.optimizer.moments);
        add_inputs(options.document_mask);
        add_layers(options.recompute);
        add_head(options.lm_head_chunks);
        add_gradients(options.recompute);
    }

    BufferTable buffers;
    MicroBatch batch;
    View norm_scratch;

  private:
    View persistent(std::string name, MemorySegment segment, DType dtype, std::int64_t rows, std::int64_t cols) {
        return buffers.add(std::move(name), segment, Lifetime::persistent, dtype, rows, cols);
    }
    View scratch(std::string name, std::int64_t bytes) {
        return bytes == 0 ? View{} : buffers.activation(std::move(name), DType::u8, 1, bytes);
    }
    View activation(std::string name, std::int64_t rows, std::int64_t cols) {
        return buffers.activation(std::move(name), precision_.storage, rows, cols);
    }
    View statistic(std::string name, std::int64_t rows, std::int64_t cols) {
        return buffers.activation(std::move(name), precision_.statistic, rows, cols);
    }

    void add_parameters(Moments moments) {
        HostViews& host = batch.host;
        const std::int64_t n = layout_.count;
        const DType moment = moments == Moments::bf16 ? DType::bf16 : precision_.master;
        host.master = persistent("master weights", MemorySegment::weights, precision_.master, 1, n);
        host.working = persistent("working weights", MemorySegment::weights, precision_.storage, 1, n);
        host.gradient = persistent("gradients", MemorySegment::gradients, precision_.gradient, 1, n);
        host.m = persistent("first moments", MemorySegment::optimizer, moment, 1, n);
        host.v = persistent("second moments", MemorySegment::optimizer, moment, 1, n);
        batch.grads = views_of(host.gradient, host.gradient);

        batch.weights = views_of(host.working, host.master);
        // Tied to the head, the embedding's working copy carries the final norm's weight.
        if (batch.tied()) batch.weights.embedding = view_of(host.master, layout_.embedding);
    }

    ModelWeights views_of(const View& matrices, const View& norms) const {
        ModelWeights views;
        views.embedding = view_of(matrices, layout_.embedding);
        views.head = view_of(matrices, layout_.head);
        views.final_norm = view_of(norms, layout_.final_norm);
        for (const LayerParameters& layer : layout_.layers) {
            views.layers.push_back({.qkv = view_of(matrices, layer.qkv),
                                    .attn_out = view_of(matrices, layer.attn_out),
                                    .gate_up = view_of(matrices, layer.gate_up),
                                    .down = view_of(matrices, layer.down),
                                    .attn_norm = view_of(norms, layer.attn_norm),
                                    .mlp_norm = view_of(norms, layer.mlp_norm)});
        }
        return views;
    }

    void add_inputs(bool document_mask) {
        HostViews& host = batch.host;
        const ModelShape& s = batch.shape;
        const auto per_token = [&](const char* name) {
            return persistent(name, MemorySegment::inputs, DType::i32, 1, s.tokens);
        };
        const auto scalar = [&](const char* name, DType dtype) {
            return persistent(name, MemorySegment::inputs, dtype, 1, 1);
        };
        host.tokens = per_token("tokens");
        host.targets = per_token("targets");
        host.positions = per_token("positions");
        if (document_mask) host.doc_start = per_token("document starts");
        host.rope = persistent("rope table", MemorySegment::inputs, precision_.statistic, s.seq_len, s.head_dim);
        host.alpha = scalar("alpha", precision_.statistic);
        host.lr = scalar("learning rate", precision_.statistic);
        host.correction1 = scalar("bias correction 1", precision_.statistic);
        host.correction2 = scalar("bias correction 2", precision_.statistic);
        host.step = scalar("step", DType::i32);
        host.sample_start = persistent("sample start", MemorySegment::inputs, DType::i32, 1, s.seq_len);
        host.loss = scalar("loss", precision_.statistic);
        // Persistent: the host reads them after a pass, when nothing else may have taken their place.
        host.losses = persistent("token losses", MemorySegment::inputs, precision_.statistic, 1, s.tokens);
        host.logits = persistent("sample logits", MemorySegment::inputs, precision_.storage, 1, s.padded_vocab);
        host.val_loss = scalar("validation loss", precision_.statistic);
        host.norm = scalar("gradient norm", precision_.statistic);
        host.clip = scalar("clip factor", precision_.statistic);
        host.skip = scalar("skip flag", DType::i32);
    }

    void add_layers(Recompute recompute) {
        const ModelShape& s = batch.shape;
        const std::int64_t tiles = ceil_div(s.width, LinearResidualRms::kTileColumns);
        for (std::size_t l = 0; l < layout_.layers.size(); ++l) {
            const auto name = [&](const char* what) { return text("layer ", l, " ", what); };
            LayerActivations act;
            act.x = activation(name("x"), s.tokens, s.width);
            act.rstd_attn = statistic(name("attention rstd"), 1, s.tokens);
            act.qkv = activation(name("qkv"), s.tokens, s.qkv_width);
            act.o = activation(name("attention output"), s.tokens, s.out_width);
            act.lse = statistic(name("attention lse"), s.heads, s.tokens);
            act.x_mid = activation(name("x after attention"), s.tokens, s.width);
            act.rstd_mlp = statistic(name("mlp rstd"), 1, s.tokens);
            if (recompute != Recompute::mlp) act.z = activation(name("gate/up"), s.tokens, 2 * s.ffn);
            act.y = activation(name("mlp activation"), s.tokens, s.ffn);
            act.square_attn = statistic(name("squares after attention"), tiles, s.tokens);
            act.square_mlp = statistic(name("squares after mlp"), tiles, s.tokens);
            batch.act.layers.push_back(act);
        }
        batch.act.x_final = activation("final x", s.tokens, s.width);
        batch.act.rstd_final = statistic("final rstd", 1, s.tokens);
    }

    void add_head(std::int64_t chunks) {
        const ModelShape& s = batch.shape;
        Activations& act = batch.act;
        // Whole GEMM tiles per chunk where there are enough rows for that.
        const std::int64_t row_tile = LinearRmsBackward::kTileRows;
        const std::int64_t even = ceil_div(s.tokens, chunks);
        const std::int64_t rows = std::min(s.tokens, even >= row_tile ? round_up(even, row_tile) : even);
        const std::int64_t vocab_tiles = ceil_div(s.padded_vocab, LinearCrossEntropy::kTileColumns);
        const View exponentials = activation("exponentials", rows, s.padded_vocab);
        const View sums = statistic("sums of exponentials", vocab_tiles, 2 * rows);

        std::int64_t dgamma_rows = 0;
        for (std::int64_t first = 0; first < s.tokens; first += rows) {
            dgamma_rows += ceil_div(std::min(rows, s.tokens - first), row_tile);
        }
        act.final_dgamma = statistic("final norm partials", dgamma_rows, s.width);

        std::int64_t dgamma_row = 0;
        for (std::int64_t first = 0; first < s.tokens; first += rows) {
            const std::int64_t number = std::min(rows, s.tokens - first);
            const std::int64_t tiles = ceil_div(number, row_tile);
            View chunk_sums = sums;
            chunk_sums.cols = chunk_sums.ld = 2 * number;
            act.chunks.push_back({.first_row = first,
                                  .rows = number,
                                  .exponentials = exponentials.row_slice(0, number),
                                  .sums = chunk_sums,
                                  .dgamma = act.final_dgamma.row_slice(dgamma_row, tiles)});
            dgamma_row += tiles;
        }
        act.target_logit = statistic("target logits", 1, s.tokens);
        act.losses = batch.host.losses;
        act.head_scale = statistic("head scale", 1, s.tokens);
        act.head_dot = statistic("head dot", 1, s.tokens);
    }

    void add_gradients(Recompute recompute) {
        const ModelShape& s = batch.shape;
        Gradients& g = batch.grad;
        const std::int64_t mlp_tiles = ceil_div(s.ffn, LinearSwigluBackward::kTileColumns);
        const std::int64_t row_tiles = ceil_div(s.tokens, LinearRmsBackward::kTileRows);
        g.dx = activation("dx", s.tokens, s.width);
        g.n = activation("normalised activation", s.tokens, s.width);
        if (recompute != Recompute::none) g.y = activation("recomputed mlp activation", s.tokens, s.ffn);
        if (recompute == Recompute::mlp) g.z = activation("recomputed gate/up", s.tokens, 2 * s.ffn);
        g.mlp_partials = statistic("mlp dot partials", mlp_tiles, s.tokens);
        g.mlp_dot = statistic("mlp dot", 1, s.tokens);
        g.dgamma = statistic("norm weight partials", row_tiles, s.width);
        g.dout = activation("attention output gradient", s.tokens, s.out_width);
        g.delta = statistic("attention delta", s.heads, s.tokens);
        g.dqkv = activation("qkv gradient", s.tokens, s.qkv_width);
        g.attention_partials = statistic("attention dot partials", s.heads + 2 * s.kv_heads, s.tokens);
        g.attention_dot = statistic("attention dot", 1, s.tokens);
        add_scratch();
    }

    void add_scratch() {
        const ModelShape& s = batch.shape;
        const MicroBatch& b = batch;
        std::int64_t weight = 0;
        const auto wgrad = [&](const View& dy, const View& x, const View& grad) {
            WeightGradient op{
                .dy = dy, .x = x, .gamma = {}, .alpha = {}, .grad = {grad, Beta::overwrite}, .scratch = {}};
            weight = std::max(weight, op.scratch_bytes());
        };
        const LayerActivations& act = b.act.layers.front();
        const LayerWeights& grads = b.grads.layers.front();
        for (const HeadChunk& chunk : b.act.chunks) {
            wgrad(chunk.exponentials, b.grad.n.row_slice(0, chunk.rows), b.grads.head);
        }
        wgrad(b.grad.dx, act.y, grads.down);
        wgrad(act.z ? act.z : b.grad.z, act.x_mid, grads.gate_up);
        wgrad(b.grad.dx, act.o, grads.attn_out);
        wgrad(b.grad.dqkv, act.x, grads.qkv);
        batch.grad.weight_scratch = scratch("weight gradient scratch", weight);

        AttentionBackward attention;
        attention.qkv = act.qkv;
        attention.seq_len = s.seq_len;
        attention.heads = s.heads;
        attention.kv_heads = s.kv_heads;
        attention.head_dim = s.head_dim;
        batch.grad.attention_scratch = scratch("attention backward scratch", attention.scratch_bytes());

        EmbedBackward embed;
        embed.tokens = b.host.tokens;
        embed.dx = b.grad.dx;
        batch.grad.embed_scratch = scratch("embedding gradient scratch", embed.scratch_bytes());

        GradNorm norm;
        norm.grad = b.host.gradient;
        norm_scratch = scratch("gradient norm scratch", norm.scratch_bytes());
    }

    const ParameterLayout& layout_;
    Precision precision_;
};

Schedule micro_batch_schedule(MicroBatch batch, Beta beta) {
    Schedule schedule;
    StepList step(schedule);
    build_forward(batch, step, true);
    build_head(batch, step, beta);
    build_backward(batch, step, beta);
    return schedule;
}

Schedule evaluate_schedule(MicroBatch batch) {
    Schedule schedule;
    StepList step(schedule);
    build_forward(batch, step, false);
    build_head_evaluation(batch, step);
    return schedule;
}

/// Every view of the forward pass cut down to the first sequence of the micro-batch.
void keep_first_sequence(MicroBatch& batch) {
    const std::int64_t seq_len = batch.shape.seq_len;
    const auto rows = [&](View& matrix) { matrix = matrix.row_slice(0, seq_len); };
    const auto columns = [&](View& per_token) { per_token.cols = per_token.ld = seq_len; };
    batch.shape.tokens = seq_len;
    columns(batch.host.tokens);
    columns(batch.host.positions);
    Activations& act = batch.act;
    for (LayerActivations& layer : act.layers) {
        for (View* matrix : {&layer.x, &layer.qkv, &layer.o, &layer.x_mid, &layer.y}) rows(*matrix);
        for (View* per_token : {&layer.rstd_attn, &layer.lse, &layer.rstd_mlp, &layer.square_attn, &layer.square_mlp}) {
            columns(*per_token);
        }
    }
    rows(act.x_final);
    columns(act.rstd_final);
}

Schedule sample_schedule(MicroBatch batch) {
    keep_first_sequence(batch);
    batch.host.doc_start = batch.host.sample_start;
    Schedule schedule;
    StepList step(schedule);
    build_forward(batch, step, false);
    build_head_sample(batch, step);
    return schedule;
}

}  // namespace

const char* name_of(Pass pass) {
    switch (pass) {
        case Pass::first: return "first micro-batch";
        case Pass::further: return "further micro-batch";
        case Pass::update: return "update";
        case Pass::evaluate: return "evaluate";
        case Pass::sample: return "sample";
    }
    return "?";
}

View view_of(const View& segment, const PackedTensor& tensor) {
    View view = segment;
    view.offset += tensor.offset * size_of(segment.dtype);
    view.rows = tensor.rows;
    view.cols = view.ld = tensor.cols;
    return view;
}

const Schedule& Schedules::operator[](Pass pass) const {
    switch (pass) {
        case Pass::first: return first;
        case Pass::further: return further;
        case Pass::update: return update;
        case Pass::evaluate: return evaluate;
        case Pass::sample: return sample;
    }
    throw Error("unknown pass");
}

std::vector<const Schedule*> Schedules::all() const {
    std::vector<const Schedule*> schedules;
    for (const Pass pass : kPasses) schedules.push_back(&(*this)[pass]);
    return schedules;
}

ScheduleOptions schedule_options(const Config& config, Precision precision) {
    return {.precision = precision,
            .seq_len = config.training.seq_len,
            .micro_batch_size = config.training.micro_batch_size,
            .lm_head_chunks = config.training.lm_head_chunks,
            .recompute = config.training.recompute,
            .document_mask = config.data.document_mask,
            .deterministic = config.deterministic,
            .max_grad_norm = config.training.max_grad_norm,
            .optimizer = config.optimizer,
            .seed = config.training.seed};
}

Schedules build_schedules(const ModelConfig& model, const ParameterLayout& layout, const ScheduleOptions& options) {
    Allocation allocation(model, layout, options);
    Schedules schedules;
    schedules.first = micro_batch_schedule(allocation.batch, Beta::overwrite);
    schedules.further = micro_batch_schedule(allocation.batch, Beta::accumulate);
    schedules.evaluate = evaluate_schedule(allocation.batch);
    schedules.sample = sample_schedule(allocation.batch);
    StepList step(schedules.update);
    build_update(layout, options, allocation.batch.host, allocation.norm_scratch, step);
    schedules.host = allocation.batch.host;
    schedules.buffers = std::move(allocation.buffers);
    return schedules;
}

MemoryPlan plan_and_check(const Schedules& schedules) {
    MemoryPlan plan = plan_memory(schedules.buffers, schedules.all());
    for (const Pass pass : kPasses) require_no_hazards(name_of(pass), schedules[pass], schedules.buffers, plan);
    return plan;
}

}  // namespace coda
