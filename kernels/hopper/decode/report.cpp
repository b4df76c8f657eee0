#include "kernels/hopper/decode/report.h"

#include "kernels/core/error.h"

namespace coda::hopper::decode {

const char* name_of(Awaited awaited) {
    switch (awaited) {
        case Awaited::chunk: return "a chunk of weights or of the cache";
        case Awaited::free_chunk: return "a free chunk";
        case Awaited::input: return "its input";
        case Awaited::parts: return "the consumer warps' sums";
        case Awaited::free_parts: return "room for its sums";
        case Awaited::residual: return "the residual";
        case Awaited::splits: return "the splits of a head";
        case Awaited::close: return "the close of the step before";
        case Awaited::token: return "the token";
        case Awaited::warps: return "the other consumer warps";
    }
    return "?";
}

std::string describe(const WatchdogReport& report, const DecodeProgram& program) {
    const auto stage = static_cast<std::size_t>(report.stage);
    const char* name = stage < program.stages.size() ? name_of(program.stages[stage].kind) : "?";
    const std::string tile = report.tile < 0 ? "" : text(" tile ", report.tile);
    return text("the fused decode kernel stopped: SM ", report.sm, " warp ", report.warp, " waited too long for ",
                name_of(report.awaited), " in stage ", report.stage, " (", name, ")", tile, " of step ", report.token,
                ", epoch ", report.epoch);
}

}  // namespace coda::hopper::decode
