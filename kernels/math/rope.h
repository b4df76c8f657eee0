// Rotation of one adjacent column pair by the RoPE angle, LLaMA's sign, shared by CPU and GPU.
#pragma once

#include "kernels/core/dtype.h"

namespace coda {

template <class T>
struct Pair {
    T first, second;
};

/// (u, v) -> (u cos - v sin, v cos + u sin).
template <class T>
CODA_HD Pair<T> rotate_pair(Pair<T> value, T cosine, T sine) {
    return {value.first * cosine - value.second * sine, value.second * cosine + value.first * sine};
}

/// The transpose of rotate_pair, which takes a gradient back through it.
template <class T>
CODA_HD Pair<T> unrotate_pair(Pair<T> value, T cosine, T sine) {
    return {value.first * cosine + value.second * sine, value.second * cosine - value.first * sine};
}

}  // namespace coda
