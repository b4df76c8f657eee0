#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/core/error.h"
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        coda::fuzz::safetensors(std::as_bytes(std::span(data, size)));
    } catch (const coda::Error&) {  // how bad input is refused; any other exception is a finding
    }
    return 0;
}
