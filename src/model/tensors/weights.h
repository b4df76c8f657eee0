// The matrices of a model in the memory of one plan: flat segments, working copies, FP8 codes and scales. Each schedule
// takes its projections from here.
//
// The working copy, which GEMMs read in storage, is one flat segment. A plan that trains in FP8 and generates nothing,
// or that keeps 4-bit integers, has a copy per matrix instead: where training reads codes, and of 4-bit integers, the
// copy exists only from where it is made to where it is read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/model/tensors/block_buffers.h"
#include "src/model/tensors/projection.h"
#include "src/model/tensors/scale_views.h"
#include "src/model/tensors/segments.h"

namespace coda {

/// A tensor with a scale of its own.
struct ScaledTensor {
    int layer = 0;
    std::string tensor;  // "gate_up.weight": the matrix, and input, weight, output_gradient or output
    DType format = DType::f8e4m3;

    bool operator==(const ScaledTensor&) const = default;
    /// "down.weight of layer 3".
    std::string place() const { return text(tensor, " of layer ", layer); }
};

/// Training reads the matrices of layers [first, end) as FP8 codes.
struct F8Layers {
    int first = 0, end = 0;

    bool has(int layer) const { return layer >= first && layer < end; }
    explicit operator bool() const { return first < end; }
};

/// The forms in which a plan keeps its matrices.
struct WeightForms {
    F8Layers f8{};
    std::vector<std::size_t> int4{};  // numbers of matrices, ascending
    bool own_copies = false;          // a working copy per matrix; required with int4
    bool own_norms = false;           // the weights of norms, and biases, apart from the master; required with int4
};

class Weights {
  public:
    Weights() = default;
    /// Adds codes and scales of FP8 matrices and units of 4-bit integers to `buffers`, with own_copies the matrices'
    /// working copies, and with own_norms the vectors.
    Weights(std::span<const WeightMatrix> matrices, const Segments& segments, const WeightForms& forms,
            const BlockBuffers& buffers);

    /// Parameters that are no matrix and belong to none, as ops read them, and their gradient: the weights of a norm of
    /// heads, and a LayerNorm before the head.
    struct Vectors {
        View value, gradient;
    };
    Vectors vectors(const PackedTensor& place) const {
        return {read_.norm(place), Segments::part(read_.gradient, place)};
    }

    /// The projection of matrix number `matrix` of the declarations.
    const Projection& projection(std::size_t matrix) const { return projections_.at(matrix); }

    /// Of the matrix that an op reads as its operand w, in storage or as codes; null: of none.
    const Projection* projection_of(const View& w) const;

    /// Whether each matrix has a working copy instead of its part of the flat one.
    bool own_copies() const { return own_copies_; }
    /// By the number of their declarations.
    const std::vector<Projection>& projections() const { return projections_; }
    /// With own_norms the weights of all norms, and biases, as in the flat segment, (1, n) master. They are read by ops
    /// that unpack 4-bit integers, whose matrices cannot carry a norm's weight, and by those that add a bias or norm
    /// heads.
    const View& norms() const { return norms_; }
    /// Whether any matrix is read as codes.
    bool f8() const { return !tensors_.empty(); }
    const ScaleViews& views() const { return views_; }
    /// In the order of their scales.
    const std::vector<ScaledTensor>& tensors() const { return tensors_; }

    /// The scales of the next step from the largest magnitudes of this one, and with them the codes of the weights,
    /// whose own largest magnitudes count for the step after: codes and the scale that undoes them change together.
    /// Before them the working copies that training reads in storage. `updated`: the segments as the update left them.
    /// `number` and `skip`: of the step (UpdateScales). `amax`: views().amax, with the value that is to count.
    void renew(StepList& step, const Segments& updated, const View& number, const View& skip, const View& amax) const;

    /// Makes what ops read that follows from the weights only, of the segments as they are or as the update left them:
    /// with LayerNorm, centred copies of the matrices that end a branch, and vectors W beta + b. Otherwise nothing.
    void derive(StepList& step, const Segments& segments) const;

  private:
    /// The scale of one of tensors_, or of normalised inputs.
    Scale scale_of(std::int32_t tensor) const;
    void add_copies(std::span<const WeightMatrix> matrices, const Segments& segments, const BlockBuffers& buffers);
    void add_units(std::span<const WeightMatrix> matrices, const std::vector<std::size_t>& int4,
                   const BlockBuffers& buffers);
    void add_codes(std::span<const WeightMatrix> matrices, const F8Layers& f8, const BlockBuffers& buffers);

    bool own_copies_ = false;
    Segments read_;  // with the norms that ops read
    View norms_;
    ScaleViews views_;
    std::vector<Projection> projections_;
    std::vector<ScaledTensor> tensors_;
    std::vector<std::array<std::int32_t, 2>> pairs_;  // of tensors_, or kNormalised: of views_.products
};

}  // namespace coda
