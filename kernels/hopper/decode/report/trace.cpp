#include "kernels/hopper/decode/report/trace.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "kernels/core/error.h"

namespace coda::hopper::decode {

namespace {

/// The trace, read by name.
struct Reader {
    const StepTrace& trace;
    int grid, ops;

    std::uint64_t at(int op, int sm, int warp, Stamp stamp) const {
        return trace[static_cast<std::size_t>(stamp_index(op, sm, grid, warp, stamp))];
    }
    bool works(int op, int sm, int warp) const { return at(op, sm, warp, Stamp::ready) != 0; }
    /// Of the last op it is not known.
    std::uint64_t end(int op, int sm, int warp) const {
        return op + 1 < ops ? at(op + 1, sm, warp, Stamp::begin) : at(op, sm, warp, Stamp::ready);
    }
    std::uint64_t first() const {
        std::uint64_t least = ~std::uint64_t{0};
        for (const std::uint64_t time : trace)
            if (time != 0) least = std::min(least, time);
        return least;
    }
};

double microseconds(std::uint64_t from, std::uint64_t to) {
    return (static_cast<double>(to) - static_cast<double>(from)) * 1e-3;
}

std::string name_of_warp(int warp) {
    if (warp < kConsumerWarps) return text("consumer ", warp);
    if (warp < kConsumerWarps + kEpilogueWarps) return text("epilogue ", warp - kConsumerWarps);
    return "producer";
}

template <class... Values>
std::string formatted(const char* format, const Values&... values) {
    std::array<char, 256> line{};
    std::snprintf(line.data(), line.size(), format, values...);
    return line.data();
}

OpTimes times_of(const Reader& reader, int op, std::uint64_t& before) {
    OpTimes times;
    int waits = 0, sms = 0;
    std::uint64_t last_consumer = 0, last = before;
    for (int sm = 0; sm < reader.grid; ++sm) {
        std::uint64_t from = ~std::uint64_t{0}, to = 0;
        for (int warp = 0; warp < kConsumerWarps + kEpilogueWarps; ++warp) {
            if (!reader.works(op, sm, warp)) continue;
            const std::uint64_t ready = reader.at(op, sm, warp, Stamp::ready);
            const std::uint64_t end = reader.end(op, sm, warp);
            last = std::max(last, end);
            if (warp >= kConsumerWarps) continue;
            times.wait += microseconds(reader.at(op, sm, warp, Stamp::begin), ready);
            ++waits;
            from = std::min(from, ready);
            to = std::max(to, end);
        }
        if (to == 0) continue;
        times.work += microseconds(from, to);
        ++sms;
        last_consumer = std::max(last_consumer, to);
    }
    times.wait /= std::max(waits, 1);
    times.work /= std::max(sms, 1);
    times.wall = microseconds(before, last);
    times.finish = last_consumer == 0 ? 0 : microseconds(last_consumer, last);
    before = last;
    return times;
}

}  // namespace

std::vector<OpTimes> op_times(const StepTrace& trace, const DecodePlan& plan) {
    const Reader reader{trace, plan.grid, static_cast<int>(plan.ops.size())};
    std::uint64_t before = reader.first();
    std::vector<OpTimes> all;
    for (int s = 0; s < static_cast<int>(plan.ops.size()); ++s) all.push_back(times_of(reader, s, before));
    return all;
}

std::string op_table(const StepTrace& trace, const DecodePlan& plan) {
    constexpr OpKind kKinds[] = {OpKind::qkv,  OpKind::attention, OpKind::attn_out, OpKind::gate_up,
                                 OpKind::down, OpKind::head,      OpKind::choose};
    const std::vector<OpTimes> times = op_times(trace, plan);
    std::string table =
        formatted("%-10s %6s %10s %10s %10s %10s %10s\n", "us", "ops", "wall", "wait", "work", "finish", "all walls");
    for (const OpKind kind : kKinds) {
        OpTimes sum;
        int number = 0;
        for (std::size_t s = 0; s < times.size(); ++s) {
            if (plan.ops[s].kind != kind) continue;
            sum.wall += times[s].wall;
            sum.wait += times[s].wait;
            sum.work += times[s].work;
            sum.finish += times[s].finish;
            ++number;
        }
        if (number == 0) continue;
        table += formatted("%-10s %6d %10.2f %10.2f %10.2f %10.2f %10.1f\n", name_of(kind), number, sum.wall / number,
                           sum.wait / number, sum.work / number, sum.finish / number, sum.wall);
    }
    return table;
}

std::string chrome_trace(const StepTrace& trace, const DecodePlan& plan) {
    const Reader reader{trace, plan.grid, static_cast<int>(plan.ops.size())};
    const std::uint64_t zero = reader.first();
    std::string json = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
    const auto add = [&](const std::string& event) { json += (json.back() == '\n' ? "" : ",\n") + event; };
    for (int sm = 0; sm < plan.grid; ++sm) {
        add(formatted(R"({"ph":"M","name":"process_name","pid":%d,"args":{"name":"SM %d"}})", sm, sm));
        for (int warp = 0; warp < kWarps; ++warp)
            add(formatted(R"({"ph":"M","name":"thread_name","pid":%d,"tid":%d,"args":{"name":"%s"}})", sm, warp,
                          name_of_warp(warp).c_str()));
    }
    for (int s = 0; s < static_cast<int>(plan.ops.size()); ++s)
        for (int sm = 0; sm < plan.grid; ++sm)
            for (int warp = 0; warp < kWarps; ++warp) {
                if (!reader.works(s, sm, warp)) continue;
                const char* kind = name_of(plan.ops[static_cast<std::size_t>(s)].kind);
                const auto partial = [&](const char* name, std::uint64_t begin, std::uint64_t end) {
                    add(formatted(
                        R"({"ph":"X","name":"%s","cat":"%s","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{"op":%d}})",
                        name, kind, sm, warp, microseconds(zero, begin), microseconds(begin, end), s));
                };
                const std::uint64_t ready = reader.at(s, sm, warp, Stamp::ready);
                partial("wait", reader.at(s, sm, warp, Stamp::begin), ready);
                partial(kind, ready, reader.end(s, sm, warp));
            }
    return json + "\n]}\n";
}

}  // namespace coda::hopper::decode
