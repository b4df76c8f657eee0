#include "src/train/model_state.h"

#include "kernels/error.h"
#include "kernels/norm_fold.h"
#include "src/io/hf.h"
#include "src/model/initialise.h"

namespace coda {

namespace {

struct NamedSegment {
    const char* name;
    View view;
};

std::vector<NamedSegment> segments_of(const HostViews& host) {
    return {{"master", host.master}, {"m", host.m}, {"v", host.v}};
}

/// `count` elements of a flat view from element `first` on.
View part_of(const View& view, std::int64_t first, std::int64_t count) {
    View part = view;
    part.offset += first * size_of(view.dtype);
    part.cols = part.ld = count;
    return part;
}

/// The same, counted in bytes.
View bytes_of(const View& view, std::int64_t offset, std::size_t bytes) {
    const std::int64_t size = size_of(view.dtype);
    return part_of(view, offset / size, static_cast<std::int64_t>(bytes) / size);
}

template <class Master, class Working>
void renew_as(Executor& executor, const HostViews& host, const ParameterLayout& layout) {
    constexpr std::int64_t kPart = 1 << 24, kBlock = 1 << 16;
    const std::int64_t norm_count = layout.count - layout.matrix_count;
    std::vector<Master> norm_values(static_cast<std::size_t>(norm_count));
    executor.download(part_of(host.master, layout.matrix_count, norm_count), norm_values.data());
    const NormWeights<Master> norms{norm_values.data(), layout.matrix_count};

    std::vector<std::byte> staging;
    std::vector<Working> working;
    for (std::int64_t first = 0; first < layout.count; first += kPart) {
        const std::int64_t count = std::min(kPart, layout.count - first);
        const auto bytes = executor.bytes(part_of(host.master, first, count), staging);
        const auto* master = reinterpret_cast<const Master*>(bytes.data());
        working.resize(static_cast<std::size_t>(count));
#pragma omp parallel for
        for (std::int64_t at = 0; at < count; at += kBlock) {
            fill_working(layout.folds, norms, first + at, std::min(kBlock, count - at), master + at,
                         working.data() + at);
        }
        executor.upload(part_of(host.working, first, count), working.data());
    }
}

/// A copy of the master segment on the host, filled by `fill` and sent to the executor.
template <class Fill>
void replace_weights(Executor& executor, const Schedules& schedules, const ParameterLayout& layout, Fill&& fill) {
    const View& segment = schedules.host.master;
    const auto send = [&](auto zero) {
        std::vector<decltype(zero)> master(static_cast<std::size_t>(segment.count()));
        fill(std::span(master));
        executor.upload(segment, master.data());
    };
    if (segment.dtype == DType::f64)
        send(double{});
    else
        send(float{});
    renew_working(executor, schedules, layout);
}

}  // namespace

void renew_working(Executor& executor, const Schedules& schedules, const ParameterLayout& layout) {
    const HostViews& host = schedules.host;
    if (host.master.dtype == DType::f64) return renew_as<double, double>(executor, host, layout);
    if (host.working.dtype == DType::bf16) return renew_as<float, Bf16>(executor, host, layout);
    renew_as<float, float>(executor, host, layout);
}

void initialise_state(Executor& executor, const Schedules& schedules, const ModelConfig& model,
                      const ParameterLayout& layout, std::uint64_t seed) {
    replace_weights(executor, schedules, layout, [&](auto master) { initialise_weights(model, layout, seed, master); });
}

void import_state(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                  const std::filesystem::path& folder) {
    replace_weights(executor, schedules, layout, [&](auto master) { import_weights(folder, layout, master); });
}

void export_state(Executor& executor, const Schedules& schedules, const ModelConfig& model,
                  const ParameterLayout& layout, const std::filesystem::path& folder) {
    std::vector<std::byte> staging;
    const std::span<const std::byte> bytes = executor.bytes(schedules.host.master, staging);
    const std::span master(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
    export_weights(folder, model, layout, master, DType::f32);
}

void save_state(Executor& executor, const Schedules& schedules, const std::filesystem::path& run, std::int64_t step,
                const nlohmann::json& state, std::int64_t keep) {
    std::vector<Segment> segments;
    for (const NamedSegment& named : segments_of(schedules.host)) {
        segments.emplace_back(named.name, named.view.bytes(),
                              [&executor, view = named.view](std::int64_t offset, std::span<std::byte> into) {
                                  executor.download(bytes_of(view, offset, into.size()), into.data());
                              });
    }
    write_checkpoint(run, step, state, segments, keep);
}

void load_state(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                const CheckpointInfo& checkpoint) {
    for (const NamedSegment& named : segments_of(schedules.host)) {
        const SegmentInfo& info = checkpoint.segment(named.name);
        require(info.bytes == named.view.bytes(), checkpoint.folder.string(), ": segment ", named.name, " has ",
                info.bytes, " bytes, this configuration needs ", named.view.bytes());
        read_segment(checkpoint, named.name, [&](std::int64_t offset, std::span<const std::byte> part) {
            executor.upload(bytes_of(named.view, offset, part.size()), part.data());
        });
    }
    renew_working(executor, schedules, layout);
}

}  // namespace coda
