#include "kernels/cases/op_cases.h"
#include "kernels/core/error.h"

namespace coda::cases {

namespace {

OpCase centre_rows(Size size) {
    const std::int64_t tokens = size == Size::step ? 32768 : 200, width = size == Size::step ? 768 : 776;
    OpCase made;
    CentreRows op;
    op.dx = made.add("dx", DType::bf16, tokens, width, Fill::normal, 1, Access::inout);
    return made.finish(op, text(tokens, " x ", width));
}

}  // namespace

template <>
OpCases cases_of<CentreRows>() {
    return {.programs = {}, .others = {{centre_rows}}};
}

}  // namespace coda::cases
