// One libFuzzer program per target: CODA_FUZZ_TARGET is the name of a function in targets.h.
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/core/error.h"
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        coda::fuzz::CODA_FUZZ_TARGET(std::as_bytes(std::span(data, size)));
    } catch (const coda::Error&) {  // how bad input is refused; any other exception is a finding
    }
    return 0;
}
