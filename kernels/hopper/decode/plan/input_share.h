// How the two SMs of a pair share the conversion of inputs to fixed point. Host and device.
#pragma once

#include "kernels/hopper/decode/plan/decode_plan.h"

namespace coda::hopper::decode {

/// Whether SMs 2 n and 2 n + 1 are a pair, of which each converts half of the sequences for both. With fewer sequences
/// the hand-over takes as long as it saves.
CODA_HD bool pairs_sms(const Shape& shape, int grid) {
    return shape.int4 && octets_of(shape.batch) == kMaxOctets && grid % 2 == 0;
}

/// Octets of sequences: first to end - 1.
struct OctetRange {
    int first = 0, end = 1;

    CODA_HD int first_sequence() const { return first * kOctet; }
    CODA_HD int end_sequence(int batch) const { return end * kOctet < batch ? end * kOctet : batch; }
};
/// Those that the first or the second SM of a pair converts.
CODA_HD OctetRange octets_of_rank(int rank) { return {rank, rank + 1}; }

}  // namespace coda::hopper::decode
