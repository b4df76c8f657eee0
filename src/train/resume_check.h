// Whether a run may continue from a checkpoint, and its ranks with each other: what must agree, what is noted, and what
// is asked for.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "kernels/core/dtype.h"
#include "src/config/config.h"
#include "src/core/console.h"
#include "src/engine/ranks.h"
#include "src/train/run_options.h"

namespace coda {

/// RunIdentity::precision of a configuration that trains in `storage`.
std::string precision_text(const PrecisionConfig& precision, DType storage);

/// What a training run's bits depend on in addition to its configuration.
struct RunIdentity {
    std::string device;     // "CPU", or the GPU's name
    std::string precision;  // of the GEMMs' operands: "f32", "bf16", "fp8", or "fp8 {what differs from it}"
    nlohmann::json data;    // {"train", "validation"}: data_fingerprint of each

    nlohmann::json json() const { return {{"device", device}, {"precision", precision}, {"data", data}}; }
};

/// Compares `state.identity`. Throws UsageError when device, precision or a data file is another, and `allow` does not
/// say so; notes what it allows, and files that were added or removed. A checkpoint without an identity has nothing to
/// compare.
void check_identity(const RunIdentity& now, const nlohmann::json& state, const ResumePermissions& allow,
                    Console& console);

/// Throws Error on all ranks unless they read the same data, and find a newest checkpoint of the same step in
/// `directory`; 0: there is none.
void require_same_inputs(const Ranks& ranks, const RunIdentity& identity, std::int64_t step,
                         const std::string& directory);

}  // namespace coda
