// The flat parameter segments.
#pragma once

#include "kernels/core/operand.h"
#include "src/model/tensors/matrix.h"

namespace coda {

/// ParameterLayout.count elements each, but for master: what the rank has of them (Division).
struct Segments {
    View master;                  // master type
    View norms;                   // the weights of all norms, and biases, which lie in master
    std::int64_t first_norm = 0;  // element of the model
    View working;                 // storage, with the weights of norms in the matrices after them
    View gradient;                // gradient type

    /// The weight of a norm, or a bias.
    View norm(PackedTensor place) const {
        place.offset -= first_norm;
        return part(norms, place);
    }
    static View part(const View& segment, const PackedTensor& tensor) {
        View view = segment;
        view.offset += tensor.offset * size_of(segment.dtype);
        view.rows = tensor.rows;
        view.cols = view.ld = tensor.cols;
        return view;
    }
};

}  // namespace coda
