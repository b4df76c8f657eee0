#include "src/train/model_state.h"

#include "kernels/error.h"
#include "src/io/hf.h"
#include "src/model/initialise.h"

namespace coda {

namespace {

/// A copy of the master segment on the host, filled by `fill` and sent to the executor with its rounded working copy.
template <class Fill>
void replace_weights(Executor& executor, const HostViews& host, Fill&& fill) {
    const auto count = static_cast<std::size_t>(host.master.count());
    const auto send = [&](auto zero) {
        std::vector<decltype(zero)> master(count);
        fill(std::span(master));
        executor.upload(host.master, master.data());
        if (host.working) {
            std::vector<Bf16> working(count);
#pragma omp parallel for schedule(static)
            for (std::size_t i = 0; i < count; ++i) working[i] = Bf16(static_cast<float>(master[i]));
            executor.upload(host.working, working.data());
        }
    };
    if (host.master.dtype == DType::f64) return send(double{});
    send(float{});
}

struct NamedSegment {
    const char* name;
    View view;
};

std::vector<NamedSegment> segments_of(const HostViews& host) {
    return {{"master", host.master}, {"m", host.m}, {"v", host.v}};
}

/// Elements [first, first + bytes / element) of a flat view.
View part_of(const View& view, std::int64_t offset, std::int64_t bytes) {
    View part = view;
    part.offset += offset;
    part.cols = part.ld = bytes / size_of(view.dtype);
    return part;
}

}  // namespace

void initialise_state(Executor& executor, const Schedules& schedules, const ModelConfig& model,
                      const ParameterLayout& layout, std::uint64_t seed) {
    replace_weights(executor, schedules.host, [&](auto master) { initialise_weights(model, layout, seed, master); });
}

void import_state(Executor& executor, const Schedules& schedules, const ParameterLayout& layout,
                  const std::filesystem::path& folder) {
    replace_weights(executor, schedules.host, [&](auto master) { import_weights(folder, layout, master); });
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
                                  executor.download(part_of(view, offset, static_cast<std::int64_t>(into.size())),
                                                    into.data());
                              });
    }
    write_checkpoint(run, step, state, segments, keep);
}

void load_state(Executor& executor, const Schedules& schedules, const CheckpointInfo& checkpoint) {
    const HostViews& host = schedules.host;
    for (const NamedSegment& named : segments_of(host)) {
        const SegmentInfo& info = checkpoint.segment(named.name);
        require(info.bytes == named.view.bytes(), checkpoint.folder.string(), ": segment ", named.name, " has ",
                info.bytes, " bytes, this configuration needs ", named.view.bytes());
        read_segment(checkpoint, named.name, [&](std::int64_t offset, std::span<const std::byte> part) {
            executor.upload(part_of(named.view, offset, static_cast<std::int64_t>(part.size())), part.data());
            if (host.working && named.view.buffer == host.master.buffer) {
                const std::span values(reinterpret_cast<const float*>(part.data()), part.size() / sizeof(float));
                const std::vector<Bf16> working(values.begin(), values.end());
                executor.upload(part_of(host.working, offset / 2, static_cast<std::int64_t>(part.size()) / 2),
                                working.data());
            }
        });
    }
}

}  // namespace coda
