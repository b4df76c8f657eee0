// From an op's storage dtype to templates: fn<Storage, Compute>().
#pragma once

#include "kernels/core/error.h"
#include "kernels/core/operand.h"

namespace coda::cpu {

/// Storage type of an op and the type of its accumulators, statistics, gradients and master weights.
template <class Storage_, class Compute_>
struct Types {
    using Storage = Storage_;
    using Compute = Compute_;
};

/// Calls fn(Types<double, double>), fn(Types<float, float>) or fn(Types<Bf16, float>).
template <class Fn>
void dispatch_storage(const char* op, DType storage, Fn&& fn) {
    switch (storage) {
        case DType::f64: return fn(Types<double, double>{});
        case DType::f32: return fn(Types<float, float>{});
        case DType::bf16: return fn(Types<Bf16, float>{});
        default: throw Error(text(op, ": storage must be f64, f32 or bf16, not ", name_of(storage)));
    }
}

/// fn(Compute()) for a statistic of type double or float.
template <class Fn>
void dispatch_statistic(const char* op, const char* operand, const View& view, Fn&& fn) {
    switch (view.dtype) {
        case DType::f64: return fn(double());
        case DType::f32: return fn(float());
        default: throw Error(text(op, ": operand ", operand, " is ", name_of(view.dtype), ", expected f64 or f32"));
    }
}

}  // namespace coda::cpu
