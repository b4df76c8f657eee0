// --dry-run and --print-schedule: what a run would do and need, without allocating anything.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/model/schedules.h"

namespace coda {

/// One line per step: phase, layer, op, name, shapes of the operands, FLOPs, bytes. Every pass of the plan.
std::string print_schedule(const Schedules& schedules);

/// Parameters, FLOPs and every memory segment that has bytes. Of a plan that trains: of an optimizer step; else of its
/// passes, and without passes (an export) of the weights.
std::string print_plan(const Config& config, const ParameterLayout& layout, const Schedules& schedules,
                       const MemoryPlan& plan);

/// The memory of print_plan for programs; plan.json in the folder of a run:
///   {"parameters", "arena_bytes", "segments": [{"name", "bytes"}, ...]}, the segments' bytes add up to the arena's.
nlohmann::json plan_json(const ParameterLayout& layout, const Schedules& schedules, const MemoryPlan& plan);

/// Bytes of the arena that the passes of a configuration need, on one of the ranks.
std::int64_t arena_bytes_of(const Config& config, const Precision& precision, PassSet passes, RankOf rank = {});

/// Model FLOPs of one optimizer step, MFU's numerator: 2 M N K of every product and causal attention's two products of
/// the forward pass, times three, since the backward pass has two products for each. What is recomputed there, by
/// training.recompute or within attention, does not count, nor does anything but GEMMs and attention.
double step_flops(const Config& config, const Schedules& schedules);

/// The smallest changes of settings, as flags, each of which makes the arena fit into `capacity` bytes, with the bytes
/// that it then takes. Empty when none of those known helps.
std::vector<std::string> fitting_settings(const Config& config, const Precision& precision, PassSet passes,
                                          std::int64_t capacity, RankOf rank = {});

/// Throws Error, with the settings that would help, when the plan does not fit into `capacity` bytes.
void require_fit(const Config& config, const Precision& precision, PassSet passes, const MemoryPlan& plan,
                 std::int64_t capacity, const std::string& device, RankOf rank = {});

/// Throws Error, with the size of the cache, when a plan that generates does not fit into `capacity` bytes.
void require_generation_fit(const Schedules& schedules, const MemoryPlan& plan, std::int64_t capacity,
                            const std::string& device);

}  // namespace coda
