// What an op is about to overwrite, copied for the oracle before the launch. Host.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

namespace coda::oracle {

/// Copies of the operands that an op both reads and overwrites: InOut operands, and In operands that share bytes with
/// an Out (in place). By field name; rows without gaps. In device memory, freed with the capture.
struct Capture {
    std::map<std::string, std::shared_ptr<std::byte>> copies;
};

}  // namespace coda::oracle
