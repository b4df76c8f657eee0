// The flat parameter segments and a block's views of them.
#pragma once

#include "src/core/buffers.h"
#include "src/model/blocks/parameter_plan.h"

namespace coda {

/// A parameter: its value, as ops read it, and its gradient.
struct Weight {
    View value, gradient;
};

/// Segments of ParameterLayout.count elements each.
struct FlatSegments {
    View master;    // master type
    View working;   // storage, with the weights of norms in the matrices after them
    View gradient;  // gradient type

    /// A matrix is read in the working copy, a norm's weight in the master.
    Weight matrix(const PackedTensor& tensor) const { return {view_of(working, tensor), view_of(gradient, tensor)}; }
    Weight norm(const PackedTensor& tensor) const { return {view_of(master, tensor), view_of(gradient, tensor)}; }

    static View view_of(const View& segment, const PackedTensor& tensor) {
        View view = segment;
        view.offset += tensor.offset * size_of(segment.dtype);
        view.rows = tensor.rows;
        view.cols = view.ld = tensor.cols;
        return view;
    }
};

}  // namespace coda
