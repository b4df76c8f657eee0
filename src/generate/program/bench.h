// --bench: how long a step takes, by batch and context.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "src/generate/decoder.h"

namespace coda {

/// Makes a decoder with a batch of `batch`.
using MakeDecoder = std::function<std::unique_ptr<Decoder>(int batch)>;

struct BenchShape {
    int most_slots = 1;
    std::int64_t context = 0;
    std::int64_t vocab = 0;  // of the model
    bool json = false;       // a line is an object, of the fields that docs/FORMATS.md gives
};

/// Prints a line for each batch that is a power of two up to most_slots, and each length of 16 4^n that leaves room in
/// `context`: the prefill of one prompt, its first token, and the median of greedy steps after it, in calls of what the
/// decoder makes at a time. Stops at an interrupt. Throws Error where the context has no room for any.
void bench(const MakeDecoder& make, const BenchShape& shape);

}  // namespace coda
