#include "kernels/cpu/run.h"

#include "kernels/core/factors.h"
#include "kernels/cpu/execute.h"

namespace coda::cpu {

void run(const Op& op, const Memory& memory) {
    std::visit(
        [&](const auto& one) {
            require_factors(one);
            execute(one, memory);
        },
        op);
}

}  // namespace coda::cpu
