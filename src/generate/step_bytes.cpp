#include "src/generate/step_bytes.h"

#include <algorithm>
#include <variant>

namespace coda {

StepBytes step_bytes(const Schedule& decode) {
    StepBytes bytes;
    View unpacked;  // 4-bit integers count where they are unpacked
    const auto is_unpacked = [&](const View& w) {
        return unpacked && w.buffer == unpacked.buffer && w.offset == unpacked.offset && w.version == unpacked.version;
    };
    for (const Step& step : decode) {
        if (const auto* unpack = std::get_if<UnpackInt4>(&step.op)) {
            bytes.weights += static_cast<double>(unpack->units.bytes());
            unpacked = unpack->working;
        }
        std::visit(
            [&]<class T>(const T& op) {
                if constexpr (T::traits.has(Trait::w)) {
                    if (!is_unpacked(op.w)) bytes.weights += static_cast<double>(op.w.bytes());
                }
                if constexpr (T::traits.has(Trait::position_bytes)) {
                    bytes.position += static_cast<double>(op.position_bytes());
                    bytes.most_positions = std::min(bytes.most_positions, op.most_positions());
                }
            },
            step.op);
    }
    return bytes;
}

}  // namespace coda
