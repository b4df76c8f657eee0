#include "kernels/cpu/run.h"

#include "kernels/cpu/execute.h"

namespace coda::cpu {

void run(const Op& op, const Memory& memory) {
    std::visit([&](const auto& concrete) { execute(concrete, memory); }, op);
}

}  // namespace coda::cpu
