#include <type_traits>

#include "kernels/hopper/attention/attention.h"
#include "kernels/hopper/pointwise/pointwise.h"
#include "kernels/hopper/programs/programs.h"
#include "kernels/hopper/run.h"

namespace coda::hopper {

Launch prepare(const Op& op, const Memory& memory) {
    return std::visit(
        [&](const auto& concrete) -> Launch {
            if constexpr (requires { prepare_op(concrete, memory); }) {
                return prepare_op(concrete, memory);
            } else {
                throw Error(text(concrete.name, " has no Hopper kernel"));
            }
        },
        op);
}

}  // namespace coda::hopper
