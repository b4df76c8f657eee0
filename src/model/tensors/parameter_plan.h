// Places parameters in the flat segments, as their blocks declare them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "src/model/tensors/matrix.h"

namespace coda {

/// Places parameters one after the other: matrices from element 0 on, norm weights and biases from `first_norm` on.
class ParameterPlan {
  public:
    explicit ParameterPlan(std::int64_t first_norm) : norm_end_(first_norm) {}

    /// Tensors that are declared from here on belong to layer l. Hugging Face lists a layer's norms after its
    /// matrices, and biases stand there too.
    void enter_layer(std::size_t l);
    void leave_layer();

    /// NAME.weight and, of a LayerNorm, NAME.bias.
    NormPlaces norm(std::int64_t width, const std::string& name, bool has_bias);
    /// The weights of norms of heads: a row for each of `names`, (names, head_dim), in the order of a head's rows in a
    /// matrix whose Order is rotary_half.
    PackedTensor head_norms(std::int64_t head_dim, std::initializer_list<const char*> names);

    /// Places a matrix, and its bias if it has one, and returns its number in matrices().
    std::size_t matrix(WeightMatrix declared);
    /// A norm before a matrix that another block has placed, as the final norm is before a tied embedding.
    void put_norm_before(std::size_t matrix, const NormPlaces& norm);

    std::int64_t matrix_end() const { return matrix_end_; }
    std::int64_t norm_end() const { return norm_end_; }
    const std::vector<WeightMatrix>& matrices() const { return matrices_; }  // by offset
    const std::vector<HfTensor>& tensors() const { return tensors_; }        // in the order of a checkpoint

  private:
    static std::int64_t place(std::int64_t& end, std::int64_t count);

    void place_bias(WeightMatrix& matrix);
    /// Where norms and biases are listed.
    std::vector<HfTensor>& vectors() { return layer_ >= 0 ? layer_vectors_ : tensors_; }

    std::int64_t matrix_end_ = 0, norm_end_;
    int layer_ = -1;
    std::string prefix_;
    std::vector<WeightMatrix> matrices_;
    std::vector<HfTensor> tensors_, layer_vectors_;
};

}  // namespace coda
