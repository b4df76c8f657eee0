// The flat parameter segments and a block's views of them.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/core/error.h"
#include "src/core/buffers.h"
#include "src/model/blocks/parameter_plan.h"
#include "src/model/blocks/step_list.h"

namespace coda {

/// A parameter: its value, as ops read it, and its gradient.
struct Weight {
    View value, gradient;
    // Of a matrix whose value no update leaves behind: what it is rounded from (RoundWeights). gamma may be absent.
    View master, gamma;

    /// Makes such a value, before the op that reads it.
    void make(StepList& step, const char* name) {
        if (master) step(name, RoundWeights{.master = master, .gamma = gamma, .working = write(value)});
    }
};

/// Segments of ParameterLayout.count elements each, and where there is no flat working copy, the matrices' own.
struct FlatSegments {
    struct Copy {
        View value, master, gamma;  // as Weight has them
        bool kept = false;          // every update makes it anew; others are made where they are read
    };

    View master;                 // master type
    View working;                // storage, with the weights of norms in the matrices after them
    View gradient;               // gradient type
    std::vector<Copy> copies{};  // of every matrix, in a plan that has no `working`

    /// A matrix is read in the working copy, a norm's weight in the master.
    Weight matrix(const PackedTensor& tensor) const {
        const View gradient_of = view_of(gradient, tensor);
        if (copies.empty()) return {view_of(working, tensor), gradient_of, {}, {}};
        const Copy& copy = copy_of(tensor);
        if (copy.kept) return {copy.value, gradient_of, {}, {}};
        return {copy.value, gradient_of, copy.master, copy.gamma};
    }
    Weight norm(const PackedTensor& tensor) const {
        return {view_of(master, tensor), view_of(gradient, tensor), {}, {}};
    }

    /// Throws Error where the plan has a flat working copy.
    const Copy& copy_of(const PackedTensor& tensor) const {
        const std::int64_t offset = view_of(master, tensor).offset;
        const auto copy =
            std::find_if(copies.begin(), copies.end(), [&](const Copy& each) { return each.master.offset == offset; });
        require(copy != copies.end(), "the matrix at element ", tensor.offset, " has no working copy of its own");
        return *copy;
    }

    static View view_of(const View& segment, const PackedTensor& tensor) {
        View view = segment;
        view.offset += tensor.offset * size_of(segment.dtype);
        view.rows = tensor.rows;
        view.cols = view.ld = tensor.cols;
        return view;
    }
};

}  // namespace coda
