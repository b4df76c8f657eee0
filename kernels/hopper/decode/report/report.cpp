#include "kernels/hopper/decode/report/report.h"

#include "kernels/core/error.h"

namespace coda::hopper::decode {

const char* name_of(Awaited awaited) {
    switch (awaited) {
        case Awaited::arrivals: return "the other SMs to be done with a layer";
        case Awaited::input: return "its input";
        case Awaited::residual: return "the residual";
        case Awaited::splits: return "the splits of a head";
        case Awaited::partner: return "the other SM of its pair";
        case Awaited::token: return "the token";
        case Awaited::commit: return "the commit of a step";
        case Awaited::stage: return "a stage of weights or of the cache";
        case Awaited::partials: return "the consumer warps' sums";
        case Awaited::free_partials: return "room for its sums";
        case Awaited::free_stage: return "a free stage";
        case Awaited::warps: return "the other consumer warps";
    }
    return "?";
}

LateWait wait_of(std::uint64_t key) {
    key = ~key;
    const auto field = [&](int bits) {
        const auto value = static_cast<std::int32_t>(key & ((std::uint64_t{1} << bits) - 1));
        key >>= bits;
        return value;
    };
    LateWait wait;
    wait.warp = field(4);
    wait.sm = field(10);
    wait.tile = field(18) - 1;
    wait.awaited = static_cast<Awaited>(field(4));
    wait.op = field(12);
    wait.step = field(16);
    return wait;
}

std::string describe(const LateWait& wait, const DecodePlan& plan) {
    const auto op = static_cast<std::size_t>(wait.op);
    const char* name = op < plan.ops.size() ? name_of(plan.ops[op].kind) : "?";
    const std::string tile = wait.tile < 0 ? "" : text(" tile ", wait.tile);
    return text("the fused decode kernel stopped: SM ", wait.sm, " warp ", wait.warp, " waited too long for ",
                name_of(wait.awaited), " in op ", wait.op, " (", name, ")", tile, " of step ", wait.step);
}

}  // namespace coda::hopper::decode
