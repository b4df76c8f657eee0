#include "src/train/nonfinite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "kernels/error.h"

namespace coda {

namespace {

template <class T>
std::int64_t first_nonfinite(std::span<const std::byte> bytes) {
    const std::span values(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
    const auto bad =
        std::find_if(values.begin(), values.end(), [](T value) { return !std::isfinite(static_cast<double>(value)); });
    return bad == values.end() ? -1 : bad - values.begin();
}

std::int64_t first_nonfinite(DType dtype, std::span<const std::byte> bytes) {
    switch (dtype) {
        case DType::f64: return first_nonfinite<double>(bytes);
        case DType::f32: return first_nonfinite<float>(bytes);
        case DType::bf16: {
            const std::span values(reinterpret_cast<const Bf16*>(bytes.data()), bytes.size() / sizeof(Bf16));
            const auto bad = std::find_if(values.begin(), values.end(),
                                          [](Bf16 value) { return !std::isfinite(static_cast<float>(value)); });
            return bad == values.end() ? -1 : bad - values.begin();
        }
        default: return -1;
    }
}

}  // namespace

void NonFiniteFinder::after(Pass pass, std::size_t index, double, double) {
    if (found_) return;
    const Step& step = schedules_[pass][index];
    for_each_operand(step.op, [&](const char* name, const View& view, Access access) {
        // The target logit of an ignored row is never written; a bad one shows in that row's loss.
        if (found_ || access == Access::in || std::string_view(name) == "target_logit") return;
        const std::int64_t bad = first_nonfinite(view.dtype, executor_.bytes(view, staging_));
        if (bad < 0) return;
        std::string where = text(name_of(step.op), " '", step.name, "'");
        if (step.layer >= 0) where += text(" of layer ", step.layer);
        found_ =
            text(where, ": operand ", name, " is not finite at row ", bad / view.cols, ", column ", bad % view.cols);
    });
}

}  // namespace coda
