// The buffers through which the host feeds and reads a run.
#pragma once

#include "src/model/tensors/scale_views.h"
#include "src/model/tensors/segments.h"
#include "src/model/tensors/streams.h"

namespace coda {

/// Scalars and tables have the statistic's dtype unless said otherwise. A plan has memory only for the views that its
/// passes touch (Schedules::uses).
struct HostViews : BatchInputs {  // written before each micro-batch; `rope` once
    // What doc_start has: where documents begin, and the window where it is shorter than a sequence.
    bool documents = false;
    std::int64_t window = 0;
    // Written before each micro-batch where a tied embedding is looked up on the host: a plan without master weights
    // has only the working copy, which carries the final norm's weight. `tokens` then are row numbers of this.
    View embedded;  // (M, d) storage
    // Written before each update.
    View lr, correction1, correction2;
    View step;        // i32, from 1
    View drop_above;  // the update of a larger gradient norm is dropped; infinity: none, negative: every one
    // Read back.
    View loss;        // mean over the valid targets of the optimizer step, after its last micro-batch
    View losses;      // (1, M) of every target, 0 where it is ignored, of the latest micro-batch or evaluate pass
    View val_loss;    // of one evaluate pass, with its own alpha
    View norm, clip;  // of the gradient, before clipping
    View skip;        // i32, why nothing was updated: bits kNonFinite (sticky) and kDropped of GradNorm
    // For generation; written when a sequence starts.
    struct Prefill {
        View tokens, positions;  // (1, rows of the longest prefill) i32; positions: 0, 1, ..., once
        View place;              // (1, 3) i32
        View doc_start;          // as positions, once; only where the window is shorter than the longest prefill
        std::int64_t window = 0;
    } prefill;
    SequenceRows sequences;
    // (V padded, d) storage: what a tied embedding is looked up in by generation without a master, and by every pass
    // of several ranks, which have only parts of the master.
    View embedding;
    KeyValueCache cache;  // of all layers, one after the other
    ScaleViews f8;        // of FP8 training
    // State: flat segments of ParameterLayout.count elements; of master, m and v what the rank has (Division).
    View master, gradient, m, v;
    View squares;  // of SquareSums, where there are several ranks: from the last micro-batch to the update
    View norms;    // of master: the weights of norms
    std::int64_t first_norm = 0;  // element of the model
    View working;  // storage dtype, with the weights of norms in the matrices after them (ParameterLayout.folds)
    Segments segments() const {
        return {.master = master, .norms = norms, .first_norm = first_norm, .working = working, .gradient = gradient};
    }
};

}  // namespace coda
