// A program on accumulators times a scalar of device memory, which undoes the scales of FP8 operands.
#pragma once

#include "kernels/hopper/epilogue/program.cuh"

namespace coda::hopper {

template <class Program>
struct Scaled : Program {
    struct Arguments {
        typename Program::Arguments program;
        const float* scale;
    };

    float scale;

    __device__ explicit Scaled(const Arguments& given) : Program(given.program), scale(__ldg(given.scale)) {}
    __device__ void visit(float2 acc, const Here& at) { Program::visit({scale * acc.x, scale * acc.y}, at); }
};

}  // namespace coda::hopper
