#include "kernels/core/factors.h"
#include "kernels/hopper/run.h"

namespace coda::hopper {

Plan choose(const Op& op, const Request& request) {
    return std::visit(
        [&]<class T>(const T& one) {
            require_factors(one);
            if constexpr (takes_f8<T>)
                if (has_codes(one)) return choose_f8<T>(one, request);
            return choose<T>(one, request);
        },
        op);
}

Launch bind(const Op& op, const Plan& plan, const Memory& memory) {
    return std::visit(
        [&]<class T>(const T& one) {
            require_factors(one);
            if constexpr (takes_f8<T>)
                if (has_codes(one)) return bind_f8<T>(one, plan, memory);
            return bind<T>(one, plan, memory);
        },
        op);
}

Launch prepare(const Op& op, const Memory& memory, const Request& request) {
    return hopper::bind(op, choose(op, request), memory);  // NOTE: unqualified, it would be std::bind
}

}  // namespace coda::hopper
