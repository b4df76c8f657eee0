#include "src/engine/plan_report.h"

#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/core/error.h"
#include "kernels/cost.h"
#include "src/config/codec.h"
#include "src/core/console.h"

namespace coda {

namespace {

std::string shapes_of(const Op& op) {
    std::ostringstream out;
    for_each_operand(op, [&](const char* name, const View& view, Access access) {
        out << (out.tellp() > 0 ? "  " : "") << name;
        if (access != Access::in) out << (access == Access::out ? ">" : "<>");
        out << '(' << view.rows << ',' << view.cols << ' ' << name_of(view.dtype) << ')';
    });
    return out.str();
}

/// "1,234,567".
std::string grouped(std::int64_t value) {
    const std::string digits = std::to_string(value);
    std::string out;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
        out += digits[i];
    }
    return out;
}

/// What fills the arena, in the order in which it lies there but for the padding, which is last.
std::vector<std::pair<std::string, std::int64_t>> segments_of(const Schedules& schedules, const MemoryPlan& plan) {
    std::map<MemorySegment, std::int64_t> persistent;
    for (std::size_t b = 0; b < schedules.buffers.size(); ++b) {
        const Buffer& buffer = schedules.buffers.all()[b];
        if (buffer.lifetime == Lifetime::persistent && plan.offset[b] >= 0) persistent[buffer.segment] += buffer.bytes;
    }
    std::vector<std::pair<std::string, std::int64_t>> segments;
    std::int64_t listed = 0;
    for (const MemorySegment segment : kMemorySegments) {
        if (segment == MemorySegment::activations || persistent[segment] == 0) continue;
        segments.emplace_back(name_of(segment), persistent[segment]);
        listed += persistent[segment];
    }
    segments.emplace_back("activations and work space", persistent[MemorySegment::activations] + plan.transient_bytes);
    listed += persistent[MemorySegment::activations];
    segments.emplace_back("alignment", plan.persistent_bytes - listed);
    return segments;
}

void memory_line(std::ostringstream& out, const std::string& what, std::int64_t bytes) {
    out << "  " << std::left << std::setw(34) << what << std::right << std::setw(20) << grouped(bytes) << " B "
        << std::setw(11) << bytes_text(static_cast<double>(bytes)) << "\n";
}

/// FLOPs of the GEMMs and attention of a micro-batch's forward pass.
double forward_flops(const Schedules& schedules) {
    double flops = 0;
    for (const Step& step : schedules.first) {
        if (step.phase == Phase::forward && work_of(step.op) != Work::other) flops += cost(step.op).flops;
    }
    return flops;
}

/// FLOPs of a micro-batch's GEMMs with FP8 operands, forward, dgrad and wgrad. None is run again in the backward pass.
double f8_flops(const Schedules& schedules) {
    double flops = 0;
    for (const Step& step : schedules.first) {
        if (multiplies_f8(step.op)) flops += cost(step.op).flops;
    }
    return flops;
}

/// Layers in FP8 do not go with every setting (validate in src/config/config.cpp).
bool recomputes(const Config& config, Recompute recompute) {
    return recompute != Recompute::mlp || !config.precision.has_fp8;
}

/// What a pass of a plan that does not train takes.
std::string pass_line(const Schedules& schedules, Pass pass) {
    const Schedule& schedule = schedules[pass];
    double flops = 0;
    for (const Step& step : schedule) flops += cost(step.op).flops;
    std::ostringstream out;
    out << "schedule            " << schedule.size() << " ops of the pass " << name_of(schedules, pass) << "; "
        << std::fixed << std::setprecision(3) << flops / 1e12 << " TFLOP\n";
    return out.str();
}

}  // namespace

std::string print_schedule(const Schedules& schedules) {
    std::ostringstream out;
    for (const Pass pass : schedules.passes()) {
        double flops = 0, bytes = 0;
        out << "# " << name_of(schedules, pass) << ": " << schedules[pass].size() << " steps\n";
        out << "# phase    layer  name                 op                       GFLOP         MB  operands (> written, "
               "<> updated)\n";
        for (const Step& step : schedules[pass]) {
            const Cost price = cost(step.op);
            flops += price.flops;
            bytes += price.bytes;
            out << std::left << std::setw(9) << name_of(step.phase) << std::right << std::setw(6)
                << (step.layer < 0 ? std::string("-") : std::to_string(step.layer)) << "  " << std::left
                << std::setw(20) << step.name << ' ' << std::setw(22) << name_of(step.op) << std::right << std::fixed
                << std::setprecision(3) << std::setw(13) << price.flops / 1e9 << std::setw(11) << price.bytes / 1e6
                << "  " << shapes_of(step.op) << "\n";
        }
        out << "# " << name_of(schedules, pass) << ": " << std::setprecision(3) << flops / 1e9 << " GFLOP, "
            << bytes / 1e6 << " MB\n\n";
    }
    return out.str();
}

std::string print_plan(const Config& config, const ParameterLayout& layout, const Schedules& schedules,
                       const MemoryPlan& plan) {
    std::ostringstream out;
    const TrainingConfig& training = config.training;
    const std::int64_t micro = training.seq_len * training.micro_batch_size;
    out << "parameters          " << grouped(layout.parameters) << " ("
        << count_text(static_cast<double>(layout.parameters)) << ")"
        << (config.model.tie_word_embeddings ? ", tied head" : ", untied head") << "\n";
    out << std::fixed << std::setprecision(3);
    if (schedules.passes().empty()) {
        out << "weights in fp32     " << grouped(layout.count * size_of(DType::f32))
            << " B, of which the host holds no more than 64 MiB at a time\n";
        return out.str();
    }
    if (schedules.has(Pass::first)) {
        out << "tokens per step     " << grouped(micro * training.grad_accumulation_steps) << " = " << training.seq_len
            << " x " << training.micro_batch_size << " x " << training.grad_accumulation_steps
            << " (sequence x micro-batch x accumulation)\n";
        out << "schedule            " << schedules.first.size() << " ops per micro-batch, " << schedules.update.size()
            << " per update; " << step_flops(config, schedules) / 1e12 << " TFLOP per step\n";
        if (const double f8 = f8_flops(schedules); f8 > 0) {
            out << "precision           FP8 operands in " << std::setprecision(1)
                << 100 * f8 / (3 * forward_flops(schedules)) << std::setprecision(3)
                << "% of those FLOPs; MFU counts them all against the peak of bf16\n";
        }
    } else {
        for (const Pass pass : schedules.passes()) out << pass_line(schedules, pass);
    }
    out << "memory\n";
    for (const auto& [name, bytes] : segments_of(schedules, plan)) memory_line(out, name, bytes);
    memory_line(out, "arena", plan.arena_bytes());
    out << "  (activations: " << grouped(plan.live_bytes)
        << " B are alive at once at the worst step; one after the other they would take " << bytes_text([&] {
               double bytes = 0;
               for (std::size_t b = 0; b < schedules.buffers.size(); ++b) {
                   const Buffer& buffer = schedules.buffers.all()[b];
                   if (buffer.lifetime == Lifetime::transient && plan.offset[b] >= 0) {
                       bytes += static_cast<double>(buffer.bytes);
                   }
               }
               return bytes;
           }())
        << ")\n";
    return out.str();
}

nlohmann::json plan_json(const ParameterLayout& layout, const Schedules& schedules, const MemoryPlan& plan) {
    nlohmann::json segments = nlohmann::json::array();
    for (const auto& [name, bytes] : segments_of(schedules, plan))
        segments.push_back({{"name", name}, {"bytes", bytes}});
    return {{"parameters", layout.parameters}, {"arena_bytes", plan.arena_bytes()}, {"segments", segments}};
}

std::int64_t arena_bytes_of(const Config& config, const Precision& precision, PassSet passes, RankOf rank) {
    const Schedules schedules = build_schedules(config.model, parameter_layout(config.model),
                                                schedule_options(config, precision, rank), passes);
    return plan_memory(schedules.buffers, schedules.all()).arena_bytes();
}

double step_flops(const Config& config, const Schedules& schedules) {
    return 3 * forward_flops(schedules) *
           static_cast<double>(config.training.grad_accumulation_steps / schedules.division.ranks());
}

std::vector<std::string> fitting_settings(const Config& config, const Precision& precision, PassSet passes,
                                          std::int64_t capacity, RankOf rank) {
    std::vector<std::string> fitting;
    const auto consider = [&](const Config& candidate, const std::string& flags) {
        const std::int64_t bytes = arena_bytes_of(candidate, precision, passes, rank);
        if (bytes <= capacity) fitting.push_back(text(flags, "  (", bytes_text(static_cast<double>(bytes)), ")"));
        return bytes <= capacity;
    };
    const std::int64_t tokens = config.training.seq_len * config.training.micro_batch_size;
    const auto with_chunks = [&](Config base, const std::string& flags) {
        for (std::int64_t chunks = 2; chunks <= 64 && chunks <= tokens; chunks *= 2) {
            if (chunks <= config.training.lm_head_chunks) continue;
            base.training.lm_head_chunks = chunks;
            if (consider(base, text(flags, "--training.lm_head_chunks ", chunks))) return;
        }
    };
    with_chunks(config, "");

    Config recompute = config;
    for (const Recompute more : {Recompute::swiglu, Recompute::mlp}) {
        if (more <= config.training.recompute || !recomputes(config, more)) continue;
        recompute.training.recompute = more;
        const std::string flag = "--training.recompute " + Codec<Recompute>::write(more).get<std::string>();
        if (consider(recompute, flag)) break;
        with_chunks(recompute, flag + " ");
    }

    Config moments = config;
    moments.optimizer.moments = Moments::bf16;
    if (config.optimizer.moments == Moments::fp32) consider(moments, "--optimizer.moments bf16");

    const auto with_micro_batch = [&](Config& candidate, std::int64_t sequences) {
        TrainingConfig& training = candidate.training;
        std::string flags = text("--training.micro_batch_size ", sequences);
        if (passes.has(Pass::first)) {
            training.grad_accumulation_steps *= training.micro_batch_size / sequences;
            flags += text(" --training.grad_accumulation_steps ", training.grad_accumulation_steps);
        }
        training.micro_batch_size = sequences;
        return flags;
    };
    Config smaller = config;
    while (smaller.training.micro_batch_size % 2 == 0) {
        const std::string flags = with_micro_batch(smaller, smaller.training.micro_batch_size / 2);
        if (consider(smaller, flags)) break;
    }
    if (fitting.empty()) {
        Config least = config;
        const Recompute most = recomputes(config, Recompute::mlp) ? Recompute::mlp : Recompute::swiglu;
        least.training.recompute = most;
        least.optimizer.moments = Moments::bf16;
        const std::string flags = with_micro_batch(least, 1);
        with_chunks(least, text(flags, " --training.recompute ", Codec<Recompute>::write(most).get<std::string>(),
                                " --optimizer.moments bf16 "));
    }
    return fitting;
}

void require_fit(const Config& config, const Precision& precision, PassSet passes, const MemoryPlan& plan,
                 std::int64_t capacity, const std::string& device, RankOf rank) {
    if (plan.arena_bytes() <= capacity) return;
    std::string message =
        text("the run needs ", bytes_text(static_cast<double>(plan.arena_bytes())), " (", plan.arena_bytes(),
             " bytes), and ", device, " has ", bytes_text(static_cast<double>(capacity)), " to give");
    const std::vector<std::string> settings = fitting_settings(config, precision, passes, capacity, rank);
    message += settings.empty() ? "; no setting makes this model fit at this sequence length: use a smaller "
                                  "training.seq_len or model"
                                : "; any of these would fit:";
    for (const std::string& setting : settings) message += "\n  " + setting;
    throw Error(message);
}

void require_generation_fit(const Schedules& schedules, const MemoryPlan& plan, std::int64_t capacity,
                            const std::string& device) {
    if (plan.arena_bytes() <= capacity) return;
    const HostViews& host = schedules.host;
    throw Error(text("generation needs ", bytes_text(static_cast<double>(plan.arena_bytes())), " (", plan.arena_bytes(),
                     " bytes), and ", device, " has ", bytes_text(static_cast<double>(capacity)),
                     " to give; the cache of ", host.sequences.token.cols / host.cache.rows_each, " sequences of ",
                     host.cache.context, " positions takes ",
                     bytes_text(static_cast<double>(host.cache.keys.bytes() + host.cache.values.bytes())),
                     ": use a shorter context or fewer sequences side by side"));
}

}  // namespace coda
