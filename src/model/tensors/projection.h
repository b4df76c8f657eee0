// A weight matrix in one schedule: z = x Wᵀ, plus a bias if it has one, with x (M, K), W (N, K) and the gradient dz
// (M, N), as its block uses it.
//
// A plan for generation may keep W as 4-bit integers. GEMMs read W in storage or, in FP8 training, as codes by rows
// (forward) and transposed (dgrad), each with the scalar that undoes the scales of the two factors. Weights makes
// projections; views count the values of their buffers, so a projection belongs to one copy of the model.
#pragma once

#include "src/model/tensors/activation.h"
#include "src/model/tensors/matrix.h"
#include "src/model/tensors/shape.h"
#include "src/model/tensors/step_list.h"
#include "src/model/tensors/streams.h"

namespace coda {

class Projection;

/// The end of a residual branch on the way back: the matrix that closed the branch, and dx as its backward pass reads
/// it. Empty in front of the first branch, where the embedding reads dx in storage.
struct BranchEnd {
    Activation* dx = nullptr;
    Projection* closing = nullptr;

    /// Whether that matrix has a bias, whose gradient is Σ dx.
    bool has_bias() const;
};

/// What the backward pass of a norm needs and leaves, besides dx.
struct NormPartials {
    View dot;     // (1, M) Σ (z - added) dz of its rows, for the projection z after the norm and what is added to it
    View dgamma;  // (tiles over M, d) partials of the norm's weight
    View dx_sum;  // (tiles over M, d) partials of the bias with which the branch before ends
    View dbeta;   // (tiles over N, d) partials of the norm's bias
};

/// Of the norm before a block and a projection to `outputs` features: buffers "BLOCK dot" and so on.
NormPartials norm_partials(const std::string& block, std::int64_t outputs, const ModelShape& shape,
                           const BlockBuffers& buffers);

/// (tiles over d, M): the sums of squares of a stream after `block`, whose branch `closing` ends.
View square_partials(const std::string& block, const Projection& closing, const ModelShape& shape,
                     const BlockBuffers& buffers);

class Projection {
  public:
    /// FP8 codes of W and the scalars of the statistic type that go with them. Absent (false) where GEMMs read storage.
    struct Codes {
        Scale weight;
        View rows, columns;                         // (N, K), and transposed, (K, N)
        View undo_forward, undo_dgrad, undo_wgrad;  // of x Wᵀ, dz W and dzᵀ x

        explicit operator bool() const { return static_cast<bool>(rows); }
    };

    /// "gate_up": as declared.
    const char* name() const { return name_; }

    /// Whether GEMMs read codes. The scales of the tensors around such a matrix; absent where it reads storage.
    bool f8() const { return static_cast<bool>(codes_); }
    const Scale& input() const { return input_; }
    const Scale& output() const { return output_; }  // of z, where the block keeps it as codes
    const Scale& output_gradient() const { return output_gradient_; }

    /// Storage instead of codes, in a pass that rounds nothing.
    void read_storage() { codes_ = {}; }

    /// w of x Wᵀ. Where W is not kept and GEMMs read it in storage, step NAME_weights makes it first.
    Factor forward(StepList& step);
    /// Columns of a stream of width `width` per partial of the sums of squares that close_branch makes.
    std::int64_t square_columns(std::int64_t width) const;
    /// Ends a residual branch: out is residual + y Wᵀ + added(), with the 1/rms of its rows. `square` takes the
    /// partials of its sums of squares. Steps NAME and `rstd_step`, after those of forward().
    void close_branch(StepList& step, const char* rstd_step, const Activation& y, const View& residual, Stream& out,
                      View& square, double eps);
    /// w of dz W.
    Factor dgrad() const;
    /// dW (+)= dzᵀ x: step NAME_wgrad. Of a matrix that is read centred, step NAME_wgrad_centred follows. It takes the
    /// mean out of the bias' gradient too, which the norm after the branch has summed already.
    void wgrad(StepList& step, const Activation& dz, const Activation& x, Beta beta);

    /// Back through the projection and the norm before it. dx, the gradient of the residual stream, is added to.
    /// `next`: where the branch before ends. An op with FP8 factors makes the codes of dx there, and if that branch
    /// ends with a bias, dx is its gradient. Steps NAME_dgrad, NAME_wgrad, NAME_beta of a norm with a bias, and
    /// `norm_step` for the gradients of the norm and of the bias that ends the branch before.
    void backward(StepList& step, const char* norm_step, const Activation& dz, const Activation& x,
                  NormPartials& partials, View& dx, Beta beta, const BranchEnd& next);

    /// W in storage, as ops read it; its gradient, and a result that overwrites or adds to it.
    const View& value() const { return value_; }
    const View& gradient() const { return gradient_; }
    Accumulate<Matrix> gradient(Beta beta) { return {write(gradient_), beta}; }
    /// W as 4-bit integers (UnpackInt4); absent where it is not kept so.
    const View& units() const { return units_; }
    /// The weight of the norm before it, in the master or among Weights::norms(); absent without one.
    const View& gamma() const { return gamma_; }
    /// What forward ops add to z: the bias, centred where W is, with W beta after a LayerNorm. Absent where there is
    /// neither.
    const View& added() const { return added_ ? added_ : bias_; }
    /// Whether the matrix itself has a bias.
    bool has_bias() const { return static_cast<bool>(bias_); }
    /// Finishes Σ dz from its partials, as the gradient of the bias, and by itself for the bias of the norm: step
    /// NAME_dz_sum. There is no step where nothing is added to z.
    void sum_dz(StepList& step, const View& partials, Beta beta);
    /// The gradient of the bias from its partials, as one more sum.
    void add_bias_sum(FinishColumnSums& sums, const View& partials, Beta beta);
    /// The gradient of the norm's weight from its partials, as one more sum.
    void add_norm_sum(FinishColumnSums& sums, const View& dgamma, Beta beta);

  private:
    friend class Weights;

    /// Makes W in storage of the master, or of 4-bit integers.
    void make_value(StepList& step, const std::string& name);
    /// Whether ops read what follows from the weights only, which derive() makes: the centred copies of matrix and bias
    /// in step NAME_centred, and W beta + b in NAME_added.
    bool derives() const { return centred_ || beta_; }
    void derive(StepList& step);
    /// What GEMMs read in storage.
    const View& read() const { return centred_ ? centred_ : value_; }
    std::string named(const char* suffix) const { return std::string(name_) + suffix; }

    const char* name_ = "";
    int layer_ = -1;
    View value_, gradient_, gamma_, gamma_gradient_, bias_, bias_gradient_;
    View beta_, beta_gradient_;  // of the LayerNorm before it
    View centred_, added_;       // (N, K) storage and (1, N) statistic, as derive() makes them
    View dz_sum_;                // (1, N) gradient: Σ dz of a micro-batch
    View master_, units_;        // what the value is made of, in a plan without a flat working copy
    bool kept_ = true;           // whether the value stays from pass to pass
    Codes codes_;
    Scale input_, output_, output_gradient_;
};

inline bool BranchEnd::has_bias() const { return closing != nullptr && closing->has_bias(); }

}  // namespace coda
