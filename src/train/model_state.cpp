#include "src/train/model_state.h"

#include "kernels/core/error.h"
#include "kernels/ops/optimizer/norm_fold.h"
#include "src/io/hf.h"
#include "src/model/initialise.h"

namespace coda {

namespace {

constexpr const char* kMaster = "master";

/// Part of a flat view, counted in bytes.
View bytes_of(const View& view, std::int64_t offset, std::size_t bytes) {
    const std::int64_t size = size_of(view.dtype);
    return part_of(view, offset / size, static_cast<std::int64_t>(bytes) / size);
}

/// Makes the working copy of the master weights that part(first, count) gives, count elements from `first` on.
template <class Master, class Part>
void send_working(Executor& executor, const HostViews& host, const ParameterLayout& layout,
                  const NormWeights<Master>& norms, const Part& part) {
    constexpr std::int64_t kPart = 1 << 24, kBlock = 1 << 16;
    const auto send = [&]<class Working>(std::vector<Working> working) {
        for (std::int64_t first = 0; first < layout.count; first += kPart) {
            const std::int64_t count = std::min(kPart, layout.count - first);
            const Master* master = part(first, count);
            working.resize(static_cast<std::size_t>(count));
#pragma omp parallel for
            for (std::int64_t at = 0; at < count; at += kBlock) {
                fill_working(layout.folds, norms, first + at, std::min(kBlock, count - at), master + at,
                             working.data() + at);
            }
            executor.upload(part_of(host.working, first, count), working.data());
        }
    };
    if (host.working.dtype == DType::bf16) return send(std::vector<Bf16>());
    send(std::vector<Master>());
}

void require_size(const CheckpointInfo& checkpoint, const char* segment, std::size_t bytes) {
    const SegmentInfo& info = checkpoint.segment(segment);
    require(info.bytes == static_cast<std::int64_t>(bytes), checkpoint.folder.string(), ": segment ", segment, " has ",
            info.bytes, " bytes, this configuration needs ", bytes);
}

/// fn(Master()) for the type of the master weights.
template <class Fn>
void dispatch_master(const HostViews& host, Fn&& fn) {
    if (host.master.dtype == DType::f64) return fn(double{});
    fn(float{});
}

}  // namespace

void renew_working(Executor& executor, const Schedules& schedules, const ParameterLayout& layout) {
    const HostViews& host = schedules.host;
    dispatch_master(host, [&]<class Master>(Master) {
        const std::int64_t norm_count = layout.count - layout.matrix_count;
        std::vector<Master> norms(static_cast<std::size_t>(norm_count));
        executor.download(part_of(host.master, layout.matrix_count, norm_count), norms.data());
        std::vector<std::byte> staging;
        send_working(executor, host, layout, NormWeights<Master>{norms.data(), layout.matrix_count},
                     [&](std::int64_t first, std::int64_t count) {
                         const auto bytes = executor.bytes(part_of(host.master, first, count), staging);
                         return reinterpret_cast<const Master*>(bytes.data());
                     });
    });
}

std::vector<float> initial_weights(const ModelConfig& model, const ParameterLayout& layout, std::uint64_t seed) {
    std::vector<float> master(static_cast<std::size_t>(layout.count));
    initialise_weights(model, layout, seed, std::span(master));
    return master;
}

std::vector<float> imported_weights(const std::filesystem::path& folder, const ParameterLayout& layout) {
    std::vector<float> master(static_cast<std::size_t>(layout.count));
    import_weights(folder, layout, std::span(master));
    return master;
}

std::vector<float> checkpoint_weights(const CheckpointInfo& checkpoint, const ParameterLayout& layout) {
    std::vector<float> master(static_cast<std::size_t>(layout.count));
    require_size(checkpoint, kMaster, std::as_bytes(std::span(master)).size());
    read_segment(checkpoint, kMaster, std::as_writable_bytes(std::span(master)));
    return master;
}

void send_weights(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                  std::span<const float> master) {
    const HostViews& host = schedules.host;
    require(static_cast<std::int64_t>(master.size()) == layout.count && host.master.dtype == DType::f32,
            "a segment of ", master.size(), " fp32 weights for a model of ", layout.count, " ",
            name_of(host.master.dtype));
    if (schedules.uses(host.master)) executor.upload(host.master, master.data());
    send_working(executor, host, layout, NormWeights<float>{master.data(), 0},
                 [&](std::int64_t first, std::int64_t) { return master.data() + first; });
}

std::vector<StateSegment> state_segments(const HostViews& host) {
    return {{kMaster, host.master}, {"m", host.m}, {"v", host.v}};
}

Segment executor_segment(Executor& executor, const StateSegment& segment) {
    return {segment.name, segment.view.bytes(),
            [&executor, view = segment.view](std::int64_t offset, std::span<std::byte> into) {
                executor.download(bytes_of(view, offset, into.size()), into.data());
            }};
}

void load_state(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                const CheckpointInfo& checkpoint) {
    for (const StateSegment& named : state_segments(schedules.host)) {
        require_size(checkpoint, named.name, static_cast<std::size_t>(named.view.bytes()));
        read_segment(checkpoint, named.name, [&](std::int64_t offset, std::span<const std::byte> part) {
            executor.upload(bytes_of(named.view, offset, part.size()), part.data());
        });
    }
    renew_working(executor, schedules, layout);
}

}  // namespace coda
