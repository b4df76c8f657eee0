#include "src/engine/model_state.h"

#include <algorithm>
#include <string_view>

#include "kernels/core/error.h"
#include "kernels/ops/optimizer/norm_fold.h"
#include "src/engine/int4_units.h"
#include "src/io/checkpoint.h"
#include "src/io/checkpoint_weights.h"

namespace coda {

namespace {

/// Part of a view of one row, counted in bytes.
View bytes_of(const View& view, std::int64_t offset, std::size_t bytes) {
    const std::int64_t size = size_of(view.dtype);
    return part_of(view, offset / size, static_cast<std::int64_t>(bytes) / size);
}

/// A matrix without gaps as one row.
View flat(View matrix) {
    matrix.cols = matrix.ld = matrix.count();
    matrix.rows = 1;
    return matrix;
}

/// Makes the working copy, where the plan has one, of master weights that come in parts.
template <class Master>
class WorkingCopy {
  public:
    WorkingCopy(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                const NormWeights<Master>& norms)
        : executor_(executor),
          working_(schedules.uses(schedules.host.working) ? schedules.host.working : View{}),
          folds_(layout.folds),
          norms_(norms) {}

    /// `master`: `count` elements from `first` on.
    void send(std::int64_t first, std::int64_t count, const Master* master) const {
        if (!working_) return;
        if (working_.dtype == DType::bf16) return send(first, count, master, std::vector<Bf16>());
        send(first, count, master, std::vector<Master>());
    }

  private:
    template <class Working>
    void send(std::int64_t first, std::int64_t count, const Master* master, std::vector<Working> working) const {
        constexpr std::int64_t kBlock = 1 << 16;
        working.resize(static_cast<std::size_t>(count));
#pragma omp parallel for
        for (std::int64_t at = 0; at < count; at += kBlock)
            fill_working(folds_, norms_, first + at, std::min(kBlock, count - at), master + at, working.data() + at);
        executor_.upload(part_of(working_, first, count), working.data());
    }

    Executor& executor_;
    View working_;
    const std::vector<NormFold>& folds_;
    NormWeights<Master> norms_;
};

/// Calls fn(first, count) for parts of the flat segment.
template <class Fn>
void for_each_part(const ParameterLayout& layout, const Fn& fn) {
    for (std::int64_t first = 0; first < layout.count; first += kWeightsPart)
        fn(first, std::min(kWeightsPart, layout.count - first));
}

/// Sends what the rank has of the bytes of elements of the model, from element `first` on, to its segment.
void upload_own(Executor& executor, const Division& division, const View& segment, std::int64_t first,
                std::span<const std::byte> bytes) {
    const std::int64_t size = size_of(segment.dtype), end = first + static_cast<std::int64_t>(bytes.size()) / size;
    for (const OwnRange& range : division.own()) {
        const std::int64_t from = std::max(first, range.first), to = std::min(end, range.first + range.count);
        if (from >= to) continue;
        executor.upload(part_of(segment, range.at + from - range.first, to - from),
                        bytes.data() + (from - first) * size);
    }
}

/// Makes the working copy of a single matrix.
void send_copy(Executor& executor, const View& copy, const PackedTensor& place, const ParameterLayout& layout,
               const NormWeights<float>& norms, const MasterWeights& weights) {
    std::vector<float> part;
    const auto send = [&]<class Working>(std::vector<Working> working) {
        for (std::int64_t first = 0; first < place.count(); first += kWeightsPart) {
            const std::int64_t count = std::min(kWeightsPart, place.count() - first);
            part.resize(static_cast<std::size_t>(count));
            weights.read(place.offset + first, part);
            working.resize(part.size());
            fill_working(layout.folds, norms, place.offset + first, count, part.data(), working.data());
            executor.upload(part_of(flat(copy), first, count), working.data());
        }
    };
    if (copy.dtype == DType::bf16) return send(std::vector<Bf16>());
    send(std::vector<float>());
}

/// Fills the copy of each matrix in a plan that has such copies and no master weights.
void send_copies(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                 const NormWeights<float>& norms, const MasterWeights& weights) {
    for (std::size_t i = 0; i < layout.matrices.size(); ++i) {
        const Projection& projection = schedules.weights.projection(i);
        if (projection.units()) {
            if (!schedules.uses(projection.units())) continue;
            executor.upload(flat(projection.units()), int4_units(layout, layout.matrices[i], weights).data());
        } else if (schedules.uses(projection.value())) {
            send_copy(executor, projection.value(), layout.matrices[i].place, layout, norms, weights);
        }
    }
}

/// fn(Master()) for the type of the master weights.
template <class Fn>
void dispatch_master(const HostViews& host, Fn&& fn) {
    if (host.master.dtype == DType::f64) return fn(double{});
    fn(float{});
}

/// The embedding in storage, as its rows are looked up.
void send_embedding(Executor& executor, const View& to, const PackedTensor& table, const MasterWeights& weights) {
    std::vector<float> part;
    const auto send = [&]<class Storage>(std::vector<Storage> stored) {
        for (std::int64_t first = 0; first < table.count(); first += kWeightsPart) {
            const std::int64_t count = std::min(kWeightsPart, table.count() - first);
            part.resize(static_cast<std::size_t>(count));
            weights.read(table.offset + first, part);
            stored.resize(part.size());
            std::transform(part.begin(), part.end(), stored.begin(), [](float value) { return Storage(value); });
            executor.upload(part_of(flat(to), first, count), stored.data());
        }
    };
    if (to.dtype == DType::bf16) return send(std::vector<Bf16>());
    send(std::vector<float>());
}

void derive(Executor& executor, const Schedules& schedules) {
    if (schedules.has(Pass::derive)) executor.run(Pass::derive);
}

}  // namespace

void renew_working(Executor& executor, const Schedules& schedules, const ParameterLayout& layout) {
    const HostViews& host = schedules.host;
    if (!schedules.uses(host.working)) return;
    dispatch_master(host, [&]<class Master>(Master) {
        const std::int64_t norm_count = layout.count - layout.matrix_count;
        std::vector<Master> norms(static_cast<std::size_t>(norm_count));
        executor.download(part_of(host.master, layout.matrix_count, norm_count), norms.data());
        const WorkingCopy<Master> working(executor, schedules, layout, {norms.data(), layout.matrix_count});
        std::vector<std::byte> staging;
        for_each_part(layout, [&](std::int64_t first, std::int64_t count) {
            const auto bytes = executor.bytes(part_of(host.master, first, count), staging);
            working.send(first, count, reinterpret_cast<const Master*>(bytes.data()));
        });
    });
    derive(executor, schedules);
}

void send_weights(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                  const MasterWeights& weights) {
    const HostViews& host = schedules.host;
    require(host.master.dtype == DType::f32, "weights are fp32, and the model's master weights are ",
            name_of(host.master.dtype));
    const bool keeps_master = schedules.uses(host.master);
    std::vector<float> norms(static_cast<std::size_t>(layout.count - layout.matrix_count)), staging;
    weights.read(layout.matrix_count, norms);
    if (schedules.uses(schedules.weights.norms())) executor.upload(schedules.weights.norms(), norms.data());
    if (!keeps_master && schedules.weights.own_copies()) {
        send_copies(executor, schedules, layout, {norms.data(), layout.matrix_count}, weights);
    } else {
        const WorkingCopy<float> working(executor, schedules, layout, {norms.data(), layout.matrix_count});
        for_each_part(layout, [&](std::int64_t first, std::int64_t count) {
            staging.resize(static_cast<std::size_t>(count));
            weights.read(first, staging);
            if (keeps_master)
                upload_own(executor, schedules.division, host.master, first, std::as_bytes(std::span(staging)));
            working.send(first, count, staging.data());
        });
    }
    if (schedules.uses(host.embedding)) send_embedding(executor, host.embedding, layout.embedding_table(), weights);
    derive(executor, schedules);
}

std::vector<StateSegment> state_segments(const Schedules& schedules) {
    const HostViews& host = schedules.host;
    const std::vector<OwnRange>& own = schedules.division.own();
    const std::int64_t count = schedules.division.count();
    std::vector<StateSegment> segments = {
        {kMasterSegment, host.master, own, count}, {"m", host.m, own, count}, {"v", host.v, own, count}};
    if (host.f8.history) {
        const View history = flat(host.f8.history);
        segments.push_back({kF8Segment, history, {{0, history.cols, 0}}, history.cols});
    }
    return segments;
}

Segment executor_segment(Executor& executor, const StateSegment& segment) {
    return {segment.name, segment.view.bytes(),
            [&executor, view = segment.view](std::int64_t offset, std::span<std::byte> into) {
                executor.download(bytes_of(view, offset, into.size()), into.data());
            }};
}

void load_state(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                const CheckpointInfo& checkpoint) {
    const HostViews& host = schedules.host;
    for (const StateSegment& named : state_segments(schedules)) {
        if (named.name == std::string_view(kF8Segment)) continue;
        require_segment_size(checkpoint, named.name, named.bytes());
        if (named.name == std::string_view(kMasterSegment)) continue;
        read_segment(checkpoint, named.name, [&](std::int64_t offset, std::span<const std::byte> part) {
            upload_own(executor, schedules.division, named.view, offset / size_of(named.view.dtype), part);
        });
    }
    dispatch_master(host, [&]<class Master>(Master) {
        constexpr auto kSize = static_cast<std::int64_t>(sizeof(Master));
        std::vector<Master> norms(static_cast<std::size_t>(layout.count - layout.matrix_count));
        segment_reader(checkpoint, kMasterSegment)
            .read_at(layout.matrix_count * kSize, std::as_writable_bytes(std::span(norms)));
        const WorkingCopy<Master> working(executor, schedules, layout, {norms.data(), layout.matrix_count});
        read_segment(checkpoint, kMasterSegment, [&](std::int64_t offset, std::span<const std::byte> part) {
            const auto* master = reinterpret_cast<const Master*>(part.data());
            const std::int64_t first = offset / kSize, count = static_cast<std::int64_t>(part.size()) / kSize;
            upload_own(executor, schedules.division, host.master, first, part);
            working.send(first, count, master);
        });
    });
    if (schedules.uses(host.embedding))
        send_embedding(executor, host.embedding, layout.embedding_table(), CheckpointWeights(checkpoint, layout));
    derive(executor, schedules);
}

}  // namespace coda
