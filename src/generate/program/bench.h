// --bench: how long a step takes, by batch and context.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "src/generate/decoder.h"

namespace coda {

/// Makes a decoder of so many slots.
using MakeDecoder = std::function<std::unique_ptr<Decoder>(int slots)>;

/// Prints a line for each batch of 1, 2, 4 and 8 up to `most_slots`, and each length of 16 4^n that leaves room in
/// `context`: the prefill of one prompt and the median of greedy steps after it. Stops at an interrupt. `vocab`: of the
/// model.
void bench(const MakeDecoder& make, int most_slots, std::int64_t context, std::int64_t vocab);

}  // namespace coda
