// The scales of FP8 training: which tensors have one, and how an update renews them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/model/blocks/block_buffers.h"
#include "src/model/blocks/float8.h"
#include "src/model/blocks/step_list.h"
#include "src/model/blocks/weights.h"
#include "src/model/host_views.h"
#include "src/model/parameters.h"

namespace coda {

/// A tensor with a scale of its own.
struct Float8Name {
    int layer = 0;
    std::string tensor;  // "gate_up.weight": the GEMM, and input, weight, output_gradient or output
    DType format = DType::f8e4m3;

    bool operator==(const Float8Name&) const = default;
};

/// "down.weight of layer 3".
inline std::string tensor_place(const std::string& tensor, int layer) { return text(tensor, " of layer ", layer); }

/// The FP8 tensors of a model, in the order of their scales; none where no GEMM takes FP8.
class Float8State {
  public:
    Float8State() = default;

    /// Adds what a run carries of them to `buffers`, and the weights' copies.
    Float8State(const PrecisionConfig& precision, const ParameterLayout& layout, const BlockBuffers& buffers);

    explicit operator bool() const { return !tensors_.empty(); }
    const std::vector<Float8Name>& tensors() const { return tensors_; }
    const HostViews::Float8& views() const { return views_; }
    Float8Layer layer(std::size_t l) const { return l < layers_.size() ? layers_[l] : Float8Layer{}; }

    /// The scales of the next step from the largest magnitudes of this one, and with them the weights' copies, whose
    /// own largest magnitudes count for the step after. A copy and the scale that undoes it so change together. Where
    /// matrices have working copies of their own (FlatSegments::copies), with those that are kept.
    void build_renewal(StepList& step, const HostViews& host, const FlatSegments& segments) const;

  private:
    struct GemmNames {
        const char *gemm, *step, *rows, *columns;
        DType gradient = DType::f8e4m3;  // the format
        bool keeps_output = false;
    };
    struct Gemm {
        std::size_t layer;
        Float8Gemm Float8Layer::*gemm;
        const char* step;  // that makes the copies of `matrix`
        PackedTensor matrix;
        std::int32_t input, weight, output_gradient;  // of tensors_, or kNormalised
        std::optional<std::int32_t> output;           // of tensors_
    };

    void add_layer(std::size_t l, const Layer::Parameters& parameters, const BlockBuffers& buffers);
    /// Gives a GEMM its scalars, the factors from `product` on.
    void complete(const Gemm& made, std::int32_t product);

    HostViews::Float8 views_;
    std::vector<Float8Name> tensors_;
    std::vector<std::array<std::int32_t, 2>> pairs_;  // of views_.products
    std::vector<Gemm> gemms_;
    std::vector<Float8Layer> layers_;
};

}  // namespace coda
