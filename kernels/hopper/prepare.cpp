#include "kernels/hopper/run.h"

namespace coda::hopper {

Plan choose(const Op& op, const Request& request) {
    return std::visit([&]<class T>(const T& concrete) { return choose<T>(concrete, request); }, op);
}

Launch bind(const Op& op, const Plan& plan, const Memory& memory) {
    return std::visit([&]<class T>(const T& concrete) { return bind<T>(concrete, plan, memory); }, op);
}

Launch prepare(const Op& op, const Memory& memory, const Request& request) {
    return hopper::bind(op, choose(op, request), memory);  // NOTE: unqualified, it would be std::bind
}

}  // namespace coda::hopper
