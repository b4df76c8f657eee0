// Every buffer of a micro-batch and the views of parameters, as forward.cpp and backward.cpp name them.
#pragma once

#include <vector>

#include "src/model/schedules.h"

namespace coda {

/// Shapes that follow from the model and the options.
struct ModelShape {
    std::int64_t tokens;   // M, of a micro-batch
    std::int64_t seq_len;  // T
    std::int64_t width;    // d
    std::int64_t ffn;      // f
    std::int64_t heads, kv_heads, head_dim;
    std::int64_t qkv_width;  // (H + 2 Hk) hd
    std::int64_t out_width;  // H hd
    std::int64_t rotated;    // (H + Hk) hd
    std::int64_t vocab;      // true vocabulary
    std::int64_t padded_vocab;
    double eps;
};

struct LayerWeights {
    View qkv, attn_out, gate_up, down;  // storage; qkv and gate_up with the weight of the norm before them
    View attn_norm, mlp_norm;           // master
};
struct ModelWeights {
    View embedding;  // storage; master where the head is tied to it
    View head;       // storage, with the final norm's weight
    View final_norm;
    std::vector<LayerWeights> layers;
};

/// What the forward pass of a layer leaves for its backward pass, then what it hands on within the layer.
struct LayerActivations {
    View x;                        // (M, d) input of the layer
    View rstd_attn;                // (1, M)
    View qkv;                      // (M, Nq) after RoPE
    View o;                        // (M, H hd)
    View lse;                      // (H, M)
    View x_mid;                    // (M, d) residual stream after attention
    View rstd_mlp;                 // (1, M)
    View z;                        // (M, 2f) gate/up interleaved; absent under MLP recompute
    View y;                        // (M, f): kept for the backward pass unless it is recomputed
    View square_attn, square_mlp;  // partials of the sums of squares of x_mid and of the layer's output
};

/// A chunk of rows of the LM head.
struct HeadChunk {
    std::int64_t first_row, rows;
    View exponentials;  // (rows, V), shared by all chunks
    View sums;          // (tiles, 2 rows), likewise
    View dgamma;        // this chunk's rows of the final norm's partials
};

struct Activations {
    std::vector<LayerActivations> layers;
    View x_final, rstd_final;
    std::vector<HeadChunk> chunks;
    View final_dgamma;                                // (tiles of all chunks, d)
    View target_logit, losses, head_scale, head_dot;  // (1, M)
};

/// Buffers of the backward pass. One buffer each serves all layers; a layer's views are values of it.
struct Gradients {
    View dx;  // (M, d) gradient of the residual stream, updated in place
    View n;   // (M, d) normalised activation of the head times its rows' scale
    View y;   // (M, f) recomputed; absent where it is kept
    View z;   // (M, 2f) under MLP recompute
    View mlp_partials, mlp_dot;
    View dgamma;       // partials of a layer's norm weight
    View dout, delta;  // (M, H hd), (H, M)
    View dqkv;         // (M, Nq)
    View attention_partials, attention_dot;
    View attention_scratch, weight_scratch, embed_scratch;
};

/// Appends steps that share a phase and a layer.
class StepList {
  public:
    explicit StepList(Schedule& schedule) : schedule_(schedule) {}
    void enter(Phase phase, int layer) {
        phase_ = phase;
        layer_ = layer;
    }
    void operator()(const char* name, Op op) { schedule_.push_back({phase_, layer_, name, std::move(op)}); }

  private:
    Schedule& schedule_;
    Phase phase_ = Phase::forward;
    int layer_ = -1;
};

/// The next value of a view: what an op that writes it produces, and what later readers of the variable mean.
inline const View& write(View& view) {
    ++view.version;
    return view;
}

/// Everything that one schedule is built from. The views are copies: each schedule counts values from its own start.
struct MicroBatch {
    ModelShape shape;
    ScheduleOptions options;
    HostViews host;
    ModelWeights weights;
    ModelWeights grads;
    Activations act;
    Gradients grad;

    /// The head's gradient is the embedding's.
    bool tied() const { return grads.embedding.offset == grads.head.offset; }
};

/// forward.cpp: tokens to the input of the final norm. `keep` false (evaluation) stores nothing for a backward pass.
void build_forward(MicroBatch& batch, StepList& step, bool keep);

/// forward.cpp: per chunk losses and, when training, the head's own backward pass; then the total loss.
void build_head(MicroBatch& batch, StepList& step, Beta beta);
void build_head_evaluation(MicroBatch& batch, StepList& step);

/// forward.cpp: logits of the last row alone.
void build_head_sample(MicroBatch& batch, StepList& step);

/// backward.cpp: from dx of the final norm to every gradient.
void build_backward(MicroBatch& batch, StepList& step, Beta beta);

/// update.cpp: gradient norm and AdamW.
void build_update(const ParameterLayout& layout, const ScheduleOptions& options, HostViews host, View scratch,
                  StepList& step);

/// A view of a flat segment.
View view_of(const View& segment, const PackedTensor& tensor);

}  // namespace coda
