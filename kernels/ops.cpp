#include "kernels/ops.h"

namespace coda {

bool between_ranks(const Op& op) {
    return std::visit([]<class T>(const T&) { return T::traits.has(Trait::between_ranks); }, op);
}

const char* name_of(const Op& op) {
    return std::visit([]<class T>(const T&) { return T::name; }, op);
}

void visit_operands_of(const Op& op, const OperandFunction& fn) {
    std::visit([&](const auto& concrete) { for_each_operand(concrete, fn); }, op);
}

void visit_rounded_of(const Op& op, const RoundedFunction& fn) {
    std::visit([&](const auto& concrete) { for_each_rounded(concrete, fn); }, op);
}

}  // namespace coda
