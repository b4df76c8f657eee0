#include "tests/hopper/oracle_judge.h"

namespace coda::test {

std::set<std::string> named_afresh(const Operands& operands, const Op& op, const Op& launched,
                                   const std::function<void(const Memory&)>& plant) {
    const cases::DeviceBuffers device(operands.buffers, 17);
    oracle::Oracle oracle;
    return named(oracle, device.memory(), op, launched, [&] {
        if (plant) plant(device.memory());
    });
}

void judge(const Operands& operands, const Op& op, const std::string& label, std::int64_t band_bytes,
           const std::set<std::string>& follows) {
    for (const std::int64_t work_bytes : {std::int64_t{256} << 20, band_bytes})
        for (const bool on_hopper : {true, false}) {
            INFO(label << (on_hopper ? " by the kernel" : " by the host") << ", work space " << work_bytes);
            oracle::Oracle oracle(work_bytes);
            const cases::DeviceBuffers device(operands.buffers, 17);
            judges_rightly(oracle, device.memory(), op, label, on_hopper ? launch_on_hopper : launch_on_host, follows);
        }
}

}  // namespace coda::test
