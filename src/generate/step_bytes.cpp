#include "src/generate/step_bytes.h"

#include <variant>

namespace coda {

StepBytes step_bytes(const Schedule& decode) {
    StepBytes bytes;
    for (const Step& step : decode) {
        std::visit(
            [&]<class T>(const T& op) {
                if constexpr (T::traits.has(Trait::w)) bytes.weights += static_cast<double>(op.w.bytes());
                if constexpr (T::traits.has(Trait::position_bytes))
                    bytes.position += static_cast<double>(op.position_bytes());
            },
            step.op);
    }
    return bytes;
}

}  // namespace coda
