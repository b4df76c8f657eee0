// An SM of the model: its barriers, counters and shared memory, of which the model keeps whose contents they hold.
#pragma once

#include <vector>

#include "tests/kernels/decode_model.h"

namespace coda::test {

struct DecodeModel::Sm {
    int number = 0;
    // The ring.
    std::vector<Phases> full, empty;
    std::vector<std::int64_t> stage;            // what a place holds
    std::vector<hopper::decode::KTile> k_tile;  // of a GEMM: which tile and slice
    std::vector<int> used;                      // warps that have yet to read it
    std::vector<int> landing;                   // places whose copy is on its way
    std::int64_t issued = 0;
    bool all_issued = false;
    int committed = 0;
    // The GEMMs' parts: the tile whose sums a warp's part of an entry holds; -1: read.
    std::vector<Phases> partials_full;
    std::vector<std::vector<int>> partials;
    std::vector<int> unread_partials;  // epilogue warps that have yet to read an entry
    int partials_read[hopper::decode::kEpilogueWarps] = {};
    // Attention's: the tile, and how many epilogue warps have yet to read its sums.
    Phases attention_full{hopper::decode::kConsumerWarps}, attention_empty{hopper::decode::kEpilogueWarps};
    std::vector<int> tile = std::vector<int>(hopper::decode::kConsumerWarps, -1),
                     unread = std::vector<int>(hopper::decode::kConsumerWarps);
    Phases consumers{hopper::decode::kConsumerWarps};
    // Per warp, where SMs are in pairs: whether its input is lent to the partner's warp, and which slice of which op
    // that one has delivered; -1: none.
    std::vector<Phases> lent = std::vector<Phases>(hopper::decode::kConsumerWarps, Phases(1)),
                        delivered = std::vector<Phases>(hopper::decode::kConsumerWarps, Phases(1));
    std::vector<bool> lends = std::vector<bool>(hopper::decode::kConsumerWarps);
    std::vector<std::int64_t> received = std::vector<std::int64_t>(hopper::decode::kConsumerWarps, -1);
    bool exiting = false;
};

}  // namespace coda::test
