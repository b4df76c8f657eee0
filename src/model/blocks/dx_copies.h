// The FP8 copies of dx, the gradient of the residual stream, that a block's backward pass begins with. What makes that
// dx writes them in its epilogue where it can; elsewhere the block makes them from dx.
#pragma once

#include "src/model/blocks/float8.h"
#include "src/model/blocks/step_list.h"

namespace coda {

struct DxCopies {
    Float8Tensor* tensor = nullptr;            // its scale and amax; nullptr where the block reads dx itself
    View *rows = nullptr, *columns = nullptr;  // (M, d), (d, M)
    bool made = false;

    /// Has the op that writes dx write the copies. The op has FP8 operands.
    void add_to(LinearRmsBackward& op) {
        if (tensor == nullptr) return;
        op.dx_scale = tensor->scale;
        op.dx_f8 = write(*rows);
        op.dx_f8_t = write(*columns);
        op.dx_amax = write(tensor->amax);
        made = true;
    }
    /// Makes them where they are read and what wrote dx did not.
    void complete(StepList& step, const char* name, const View& dx) {
        if (tensor == nullptr || made) return;
        step(name, QuantiseF8{.x = dx,
                              .rstd = {},
                              .scale = tensor->scale,
                              .rows = write(*rows),
                              .columns = write(*columns),
                              .amax = write(tensor->amax)});
        made = true;
    }
};

}  // namespace coda
