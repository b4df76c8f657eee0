// The flat parameter segments.
#pragma once

#include "kernels/core/operand.h"
#include "src/model/tensors/matrix.h"

namespace coda {

/// ParameterLayout.count elements each.
struct Segments {
    View master;    // master type
    View working;   // storage, with the weights of norms in the matrices after them
    View gradient;  // gradient type

    static View part(const View& segment, const PackedTensor& tensor) {
        View view = segment;
        view.offset += tensor.offset * size_of(segment.dtype);
        view.rows = tensor.rows;
        view.cols = view.ld = tensor.cols;
        return view;
    }
};

}  // namespace coda
