// Checks the CPU executor's promise for one op: the same bits with any number of OpenMP threads.
#pragma once

#include <omp.h>

#include <string>

#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"

namespace coda::test {

/// build(Buffers&) makes operands, the same ones each time, and returns the op. It runs with 1, 2 and 3 threads, and
/// the bits of everything it writes are compared.
template <class Build>
void require_same_bits_for_any_thread_count(const Build& build) {
    const int before = omp_get_max_threads();
    std::string expected;
    for (const int threads : {1, 2, 3}) {
        Buffers buffers;
        const auto op = build(buffers);
        omp_set_num_threads(threads);
        cpu::run(op, buffers.memory());
        omp_set_num_threads(before);
        std::string written;
        for_each_operand(op, [&](const char*, const View& view, Access access) {
            if (access != Access::in) written += buffers.bits(view);
        });
        if (threads == 1) expected = written;
        REQUIRE((written == expected));
    }
}

}  // namespace coda::test
