#include "src/model/division.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/core/integers.h"

namespace coda {

namespace {

/// The matrices whose gradients become final together: a layer's, the embedding, the head.
struct Group {
    ElementRange elements;
    int layer;  // -1: none
};

std::vector<Group> groups_of(const ParameterLayout& layout) {
    std::vector<Group> groups;
    for (const WeightMatrix& matrix : layout.matrices) {
        // Nothing writes the gradients of a gap between two matrices, so none is exchanged.
        if (!groups.empty() && matrix.layer >= 0 && matrix.layer == groups.back().layer &&
            groups.back().elements.end() == matrix.place.offset)
            groups.back().elements.count += matrix.place.count();
        else
            groups.push_back({{matrix.place.offset, matrix.place.count()}, matrix.layer});
    }
    return groups;
}

}  // namespace

Division::Division(const ParameterLayout& layout, int rank, int ranks) : rank_(rank), ranks_(ranks) {
    require(rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks, " does not exist");
    const ElementRange norms{layout.matrix_count, layout.count - layout.matrix_count};
    if (ranks == 1) {
        shared_ = {{0, layout.matrix_count}, norms};
        own_ = {{0, layout.count, 0}};
        return;
    }
    const std::vector<Group> groups = groups_of(layout);
    const std::int64_t unit = kPartUnit * ranks;
    std::int64_t most = unit;  // elements of a bucket
    for (const Group& group : groups)
        if (group.layer >= 0) most = std::max(most, group.elements.count / unit * unit);
    const auto take = [&](std::int64_t first, std::int64_t count) {
        if (count == 0) return;
        own_.push_back({first, count, own_.empty() ? 0 : own_count()});
    };
    for (const auto& [group, layer] : groups) {
        std::int64_t first = group.first;
        for (; group.end() - first >= unit; first += buckets_.back().part * ranks) {
            const std::int64_t count = std::min(most, (group.end() - first) / unit * unit);
            buckets_.push_back({first, count / ranks});
            largest_part_ = std::max(largest_part_, count / ranks);
            take(buckets_.back().part_of(rank).first, count / ranks);
        }
        if (first == group.end()) continue;
        shared_.push_back({first, group.end() - first});
        take(first, group.end() - first);
    }
    shared_.push_back(norms);
    take(norms.first, norms.count);
    require(!buckets_.empty(), "the model has ", layout.parameters, " parameters, too few for ", ranks,
            " ranks: a layer needs at least ", unit);
}

std::int64_t Division::place_of(std::int64_t first, std::int64_t count) const {
    const auto found = std::find_if(own_.begin(), own_.end(), [&](const OwnRange& range) {
        return first >= range.first && first + count <= range.first + range.count;
    });
    require(found != own_.end(), "elements ", first, " to ", first + count - 1, " of the model are another rank's");
    return found->at + (first - found->first);
}

}  // namespace coda
