// The instruction set: one plain struct per operation of the forward, backward and optimizer schedule.
//
// An op holds operands with shapes and the constants of its formula; it has no behaviour. Four interpreters give it
// behaviour: cpu::run, hopper::prepare, cost and oracle::check. Formulas follow CODA ("Rewriting Transformer Blocks as
// GEMM-Epilogue Programs", arXiv 2605.19269) and are derived again next to each op; K1..K10 are that paper's kernels.
//
// Notation. M = B*T tokens of a micro-batch (row m = b*T + t); d model width, f feed-forward width, V padded
// vocabulary, H query heads, Hk key/value heads, hd head dimension, Nq = (H + 2 Hk) hd. All matrices are row-major. acc
// is the GEMM's accumulator. A vector over rows broadcasts along columns, and the other way round. "storage",
// "statistic", "gradient" and "master" are the roles of Precision (dtype.h). Every stored element is rounded once, from
// the accumulator's type.
//
// Partials are tile-major, (tiles, rows) or (tiles, columns), with one entry per tile. A tile's width is the op's field
// `tile`; the op states its value as kTileColumns, tile_columns or kTileRows. The last tile may be ragged. A Finish op
// sums the partials in a fixed order.
//
// No op of the forward pass has the weight gamma of a norm. The matrix after the norm carries gamma in its columns, in
// the working copy that GEMMs read (NormFold, ops/optimizer/op.h). So the next GEMM reads x itself, where CODA stores
// h = x ⊙ gamma next to x.
//
// LayerNorm is rstd x ⊙ gamma + beta, with RMSNorm's rstd, where every row of the stream x has mean 0. It does because
// what is added to x comes from matrices and biases without their mean over the output dimension (CentreColumns), which
// is also taken out of their gradients. A projection after such a norm adds v = W beta + b (FoldBeta, BetaBackward).
//
// RMSNorm's backward pass needs the statistic c = (1/d) Σ_j x̂_j dx̂_j, where x̂ is the normalised x. For a norm
// followed by z = (x ⊙ rstd ⊙ gamma) Wᵀ + b, it equals (1/d) Σ (z - b) dz over all output features, exactly and with
// eps. So Σ z dz is summed where dz is computed, before the dgrad GEMM whose epilogue needs it. Of a bias, Σ b dz is
// left out there. Where heads of z have a norm, z and dz are those before it. "dot" below is the result.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "kernels/ops/attention/op.h"
#include "kernels/ops/centre/op.h"
#include "kernels/ops/centre_rows/op.h"
#include "kernels/ops/choose_token/op.h"
#include "kernels/ops/cross_entropy/op.h"
#include "kernels/ops/embedding/op.h"
#include "kernels/ops/exchange/op.h"
#include "kernels/ops/finish/op.h"
#include "kernels/ops/key_value_cache/op.h"
#include "kernels/ops/layer_norm/op.h"
#include "kernels/ops/linear/op.h"
#include "kernels/ops/linear_gelu/op.h"
#include "kernels/ops/linear_head_dot/op.h"
#include "kernels/ops/linear_residual_rms/op.h"
#include "kernels/ops/linear_rms_backward/op.h"
#include "kernels/ops/linear_rope/op.h"
#include "kernels/ops/linear_swiglu/op.h"
#include "kernels/ops/norm_beta/op.h"
#include "kernels/ops/optimizer/op.h"
#include "kernels/ops/parts/op.h"
#include "kernels/ops/quantise/op.h"
#include "kernels/ops/round_weights/op.h"
#include "kernels/ops/scales/op.h"
#include "kernels/ops/unpack_int4/op.h"
#include "kernels/ops/weight_gradient/op.h"
#include "kernels/ops/zero/op.h"

namespace coda {

// One op per line, so that a new one is one line of a diff.
// clang-format off
using Op = std::variant<
    Embed,
    Linear,
    LinearRope,
    LinearSwiglu,
    LinearGelu,
    LinearCrossEntropy,
    LinearResidualRms,
    TargetLogit,
    FinishRstd,
    LayerNorm,
    Attention,
    StoreKeyValue,
    DecodeAttention,
    FinishCrossEntropy,
    ExactCrossEntropy,
    ReduceLoss,
    ChooseToken,
    LinearRmsBackward,
    LinearSwigluBackward,
    LinearGeluBackward,
    LinearHeadDot,
    WeightGradient,
    AttentionBackward,
    BetaBackward,
    LayerNormBackward,
    FinishRowSum,
    FinishColumnSums,
    CentreRows,
    EmbedBackward,
    Zero,
    QuantiseF8,
    CountF8,
    StartExchange,
    FinishExchange,
    ReduceParts,
    SumSquares,
    GradNorm,
    AdamW,
    RoundWeights,
    CentreColumns,
    FoldBeta,
    UnpackInt4,
    UpdateScales>;
// clang-format on

template <class... Ops>
constexpr bool traits_are_checked(std::variant<Ops...>*) {
    return (CheckedTraits<Ops>::value && ...);
}
static_assert(traits_are_checked(static_cast<Op*>(nullptr)));

enum class Phase : std::uint8_t { forward, backward, update };

inline const char* name_of(Phase phase) {
    switch (phase) {
        case Phase::forward: return "forward";
        case Phase::backward: return "backward";
        case Phase::update: return "update";
    }
    return "?";
}

/// One entry of an op list (Schedule). `layer` is -1 outside the layers.
struct Step {
    Phase phase = Phase::forward;
    int layer = -1;
    std::string name;
    Op op;
};
using Schedule = std::vector<Step>;

/// Calls fn(name, view, access) for every operand that is present.
template <class T, class Fn>
void for_each_operand(const T& op, Fn&& fn) {
    visit_operands(op, [&](const char* name, const auto& operand) {
        if (operand) fn(name, static_cast<const View&>(operand), operand.access());
    });
}

/// Whether the op moves bytes between ranks.
bool between_ranks(const Op& op);

const char* name_of(const Op& op);

// For an op of any type these are compiled once, in ops.cpp: every use of std::visit would compile a function per op.
using OperandFunction = std::function<void(const char* name, const View& view, Access access)>;
using RoundedFunction = std::function<void(const Rounded& codes)>;
void visit_operands_of(const Op& op, const OperandFunction& fn);
void visit_rounded_of(const Op& op, const RoundedFunction& fn);

template <class Fn>
void for_each_operand(const Op& op, Fn&& fn) {
    visit_operands_of(op, std::ref(fn));
}

/// Calls fn(Rounded) for every result that is rounded to FP8.
template <class Fn>
void for_each_rounded(const Op& op, Fn&& fn) {
    visit_rounded_of(op, std::ref(fn));
}

}  // namespace coda
