// The parameters of the fused kernel. Host and device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/hopper/decode/plan/decode_plan.h"

namespace coda::hopper::decode {

inline constexpr int kMapBytes = 128;

struct Arguments {
    Operands operands;
    Layout layout;
    Exchange exchange;
    const DecodeOp* ops = nullptr;
    const std::byte* maps = nullptr;  // a tensor map of kMapBytes per op; nothing in those without a GEMM
    int op_count = 0, steps = 0, grid = 0;
    std::uint32_t epoch = 0;               // the first of the launch
    std::uint64_t* words = nullptr;        // Exchange
    const std::int32_t* start = nullptr;   // (3, S): token, length, state before the launch
    std::int32_t* made = nullptr;          // (steps, S)
    const std::int32_t* cancel = nullptr;  // of the host
    std::uint64_t* report = nullptr;       // report/report.h
    std::uint64_t* trace = nullptr;        // of step `traced_step`: report/trace.h
    int traced_step = -1;                  // -1: none
    int layers = 0;                        // layers_of(op_count), whose division would spill a register
    bool pairs = false;                    // pairs_sms()
    std::uint64_t watchdog_nanoseconds = 0;
};

}  // namespace coda::hopper::decode
