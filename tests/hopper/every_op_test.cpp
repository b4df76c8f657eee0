// Every op of the instruction set, with the cases that its folder states: the Hopper kernel against cpu::run on the
// same operands, with poisoned outputs, twice. The test iterates the types of the variant, so no op is left out.
//
// Tolerances: what the oracle allows (kernels/oracle/tolerance.h). Its bounds hold between any two correct paths with
// bf16 operands and fp32 accumulation. Where both paths round to bf16 they are doubled, because each may round the
// other way.
#include "kernels/cases/op_cases.h"
#include "kernels/cpu/run.h"
#include "kernels/hopper/run.h"
#include "kernels/hopper/sm90/device_model.h"
#include "kernels/oracle/tolerance.h"
#include "tests/hopper/harness.h"

using namespace coda;
using namespace coda::test;

namespace {

struct Contents {
    Op op;
    std::vector<cases::Buffer> buffers;
    std::vector<std::int32_t> tokens;
    std::string label;
};

std::vector<Contents> contents_of(const cases::OpCases& list) {
    std::vector<Contents> all;
    for (const cases::Program& program : list.programs) {
        const cases::GemmCase made = program.make({program.name, 264, 384, 136}, {.optionals = true});
        all.push_back({made.op, made.buffers, {}, program.name});
    }
    for (const cases::NamedCase& named : list.others) {
        const cases::OpCase made = named.make(cases::Size::test);
        all.push_back({made.op, made.buffers, made.tokens, made.shape});
    }
    return all;
}

double allowed_rms(const Op& op, const std::string& operand) { return 2 * oracle::tolerance(op, operand).rms; }

void check(const Contents& made) {
    Bytes first;
    for (int run = 0; run < 2; ++run) {
        const cases::DeviceBuffers device(made.buffers, 31);
        if (!made.tokens.empty())
            CUDA_CHECK(cudaMemcpy(device.memory().address(made.buffers[0].view), made.tokens.data(),
                                  4 * made.tokens.size(), cudaMemcpyHostToDevice));
        Bytes expected = download(made.buffers, device.memory());
        hopper::prepare(made.op, device.memory())(nullptr);
        CUDA_CHECK(cudaDeviceSynchronize());
        const Bytes got = download(made.buffers, device.memory());
        if (run == 1) {
            for_each_operand(made.op, [&](const std::string& name, const View& view, Access access) {
                const auto i = static_cast<std::size_t>(view.buffer);
                if (access != Access::in && name != "scratch") CHECK(got[i] == first[i]);
            });
            return;
        }
        cpu::run(made.op, memory_of(expected));
        for_each_operand(made.op, [&](const std::string& name, const View& view, Access access) {
            const auto i = static_cast<std::size_t>(view.buffer);
            INFO(name_of(made.op) << " " << made.label << ": " << name);
            if (access == Access::in) {
                CHECK(got[i] == expected[i]);
            } else if (name != "scratch" && view.dtype != DType::i32) {
                const Difference found = difference(got[i], expected[i], view);
                INFO("relative RMS " << found.rms << ", allowed " << allowed_rms(made.op, name));
                CHECK(found.rms <= allowed_rms(made.op, name));
            }
        });
        first = got;
    }
}

}  // namespace

TEST_CASE("every op of the instruction set agrees with the CPU", "[gpu]") {
    if (!has_hopper()) return;
    cases::for_each_op_type([]<class T>() {
        if (T::traits.has(Trait::between_ranks)) return;
        const std::vector<Contents> all = contents_of(cases::cases_of<T>());
        INFO(T::name);
        CHECK((!all.empty() || !cases::cases_of<T>().f8.empty()));  // FP8 factors: f8_programs_test.cpp
        for (const Contents& made : all) {
            CHECK(std::holds_alternative<T>(made.op));
            check(made);
        }
    });
}

TEST_CASE("tiles are chosen without the GPU as with it", "[gpu]") {
    if (!has_hopper()) return;
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(properties.multiProcessorCount == hopper::kMultiprocessors);
}
