#include "src/train/checkpoints.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/core/errors.h"
#include "src/engine/device.h"
#include "src/engine/finite_state.h"
#include "src/engine/model_state.h"
#include "src/io/checkpoint.h"

namespace coda {

namespace {

constexpr std::int64_t kHostReserve = std::int64_t{1} << 30;  // for the program, its files' cache and other programs

bool wants_copy(const Config& config) {
    return config.checkpoint.background && config.checkpoint.interval > 0 &&
           config.checkpoint.interval < config.training.steps;
}

}  // namespace

std::int64_t checkpoint_copy_bytes(const Config& config, const Schedules& schedules) {
    std::int64_t bytes = 0;
    if (!wants_copy(config) || schedules.division.divides()) return bytes;
    for (const StateSegment& segment : state_segments(schedules)) bytes += segment.bytes();
    return bytes;
}

std::string checkpoint_line(const Config& config, const Schedules& schedules) {
    const std::int64_t bytes = checkpoint_copy_bytes(config, schedules);
    if (bytes == 0) return "";
    return text("checkpoints         written while the run continues, from a copy of ",
                bytes_text(static_cast<double>(bytes)),
                " in host memory; --checkpoint.background false needs none, and the run waits for each\n");
}

Checkpoints::Checkpoints(Session& session, const Ranks& ranks, Console& console)
    : session_(session),
      ranks_(ranks),
      console_(console),
      writer_(session.config().output.directory, session.config().checkpoint.keep) {
    const std::int64_t bytes = checkpoint_copy_bytes(session.config(), session.schedules());
    if (bytes == 0) return;
    // The host's arena has taken none of its pages yet.
    Executor& executor = session.executor();
    const std::int64_t arena = executor.asynchronous() ? 0 : session.plan().arena_bytes();
    const std::int64_t free = available_host_memory() - arena - kHostReserve;
    std::string problem;
    if (bytes > free) {
        problem = text("the host has ", bytes_text(static_cast<double>(std::max<std::int64_t>(0, free))), " for it");
    } else {
        try {
            std::vector<View> views;
            for (const StateSegment& segment : state_segments(session.schedules())) views.push_back(segment.view);
            copy_ = &executor.make_state_copy(views);
            return;
        } catch (const Error& error) {
            problem = error.what();
        }
    }
    console.line(text("note: the run waits for each checkpoint to be written, as a copy of weights and moments takes ",
                      bytes_text(static_cast<double>(bytes)), " of host memory, and ", problem,
                      "; --checkpoint.background false says so without this note"));
}

void Checkpoints::save(std::int64_t step, const nlohmann::json& state, const std::function<void()>& log_is_safe) {
    ranks_.together([&] { require_finite_state(session_, step); });
    if (const auto outcome = writer_.wait()) take_outcome(*outcome);
    const auto not_written = [step](const auto&... why) {
        return Outcome{step, text("the checkpoint of step ", step, " was not written", why...,
                                  "; earlier checkpoints are untouched")};
    };
    try {
        ranks_.together(log_is_safe);
    } catch (const LostRankError&) {
        throw;
    } catch (const Error& error) {
        return take_outcome(not_written(", as its log cannot be: ", error.what()));
    }
    if (ranks_.count() > 1) {
        try {
            write_together(step, state);
            return take_outcome({step, std::nullopt});
        } catch (const LostRankError&) {
            throw;
        } catch (const Error& error) {
            return take_outcome(not_written(": ", error.what()));
        }
    }
    CheckpointWriter::Job job{.step = step, .state = state, .segments = {}, .ready = {}};
    const std::vector<StateSegment> segments = state_segments(session_.schedules());
    if (copy_) {
        copy_->take();
        for (std::size_t i = 0; i < segments.size(); ++i) job.segments.emplace_back(segments[i].name, copy_->bytes(i));
        job.ready = [copy = copy_] { copy->wait(); };
        writer_.start(std::move(job));
        return;
    }
    for (const StateSegment& segment : segments) job.segments.push_back(executor_segment(session_.executor(), segment));
    writer_.start(std::move(job));
    take_outcome(*writer_.wait());
}

void Checkpoints::write_together(std::int64_t step, const nlohmann::json& state) {
    const Config& config = session_.config();
    std::optional<CheckpointDraft> draft;  // of the first rank
    ranks_.together([&] {
        if (!ranks_.leads()) return;
        std::vector<SegmentSize> sizes;
        for (const StateSegment& segment : state_segments(session_.schedules()))
            sizes.push_back({segment.name, segment.bytes()});
        draft.emplace(config.output.directory, step, std::move(sizes));
    });
    ranks_.together([&] { write_own_parts(step); });
    ranks_.together([&] {
        if (draft) draft->complete(state, config.checkpoint.keep);
    });
}

void Checkpoints::write_own_parts(std::int64_t step) {
    std::vector<std::byte> staging;
    for (const StateSegment& segment : state_segments(session_.schedules())) {
        const bool shared = segment.ranges.front().count == segment.count;  // every rank has it, and one writes it
        if (shared && !ranks_.leads()) continue;
        CheckpointPart part(session_.config().output.directory, step, segment.name);
        const std::int64_t size = size_of(segment.view.dtype), most = kCheckpointChunk / size;
        for (const OwnRange& range : segment.ranges) {
            for (std::int64_t at = 0; at < range.count; at += most) {
                const View view = part_of(segment.view, range.at + at, std::min(most, range.count - at));
                part.write((range.first + at) * size, session_.executor().bytes(view, staging));
            }
        }
        part.finish();
    }
}

void Checkpoints::look() {
    if (const auto outcome = writer_.poll()) take_outcome(*outcome);
}

void Checkpoints::finish() {
    if (const auto outcome = writer_.wait()) take_outcome(*outcome);
    if (problem_) ranks_.stop<Error>(*problem_);
}

void Checkpoints::take_outcome(const Outcome& outcome) {
    problem_ = outcome.problem;
    if (problem_) console_.line(text(*problem_, "; the next one that is due is tried again"));
}

}  // namespace coda
