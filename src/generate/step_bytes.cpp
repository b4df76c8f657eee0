#include "src/generate/step_bytes.h"

#include <variant>

namespace coda {

StepBytes step_bytes(const Schedule& decode) {
    StepBytes bytes;
    for (const Step& step : decode) {
        std::visit(
            [&](const auto& op) {
                if constexpr (requires { op.w; }) bytes.weights += static_cast<double>(op.w.bytes());
            },
            step.op);
        if (const auto* attention = std::get_if<DecodeAttention>(&step.op)) {
            const double positions =
                static_cast<double>(attention->keys.rows) / static_cast<double>(attention->kv_heads);
            bytes.position += static_cast<double>(attention->keys.bytes() + attention->values.bytes()) / positions;
        }
    }
    return bytes;
}

}  // namespace coda
