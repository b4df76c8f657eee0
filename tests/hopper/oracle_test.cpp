// The oracle against the GEMM programs: it accepts right results, and names the operand of a wrong one.
#include "kernels/core/integers.h"
#include "tests/hopper/gemm_check.h"
#include "tests/hopper/oracle_plants.h"

using namespace coda;
using namespace coda::test;
using cases::GemmCase;

namespace {

GemmCase swiglu_backward_in_place() {
    GemmCase made = cases::make_case({"LinearSwigluBackward", 328, 784, 520}, {.optionals = true});
    auto& op = std::get<LinearSwigluBackward>(made.op);
    op.dz = Result(op.z);
    return made;
}

GemmCase gelu_backward_in_place() {
    GemmCase made = cases::make_case({"LinearGeluBackward tanh", 328, 784, 520}, {.optionals = true});
    auto& op = std::get<LinearGeluBackward>(made.op);
    static_cast<View&>(op.dz) = op.z;
    return made;
}

GemmCase swiglu_backward_f8_in_place() {
    GemmCase made = cases::make_case({"LinearSwigluBackward f8", 336, 784, 528}, {.gap = 16});
    auto& op = std::get<LinearSwigluBackward>(made.op);
    op.dz.codes.columns = View(op.z);
    return made;
}

}  // namespace

TEST_CASE("the oracle judges every GEMM op", "[gpu][oracle]") {
    if (!has_hopper()) return;
    oracle::Oracle whole;
    oracle::Oracle banded(std::int64_t{256} << 10);  // 83 rows of 784 columns; a row tile of 64 fits
    for (const auto& [program, make, columns, gradient] : cases::all_programs()) {
        for (const bool accumulate : {false, true}) {
            const GemmCase made = cases::make_case({program, 328, columns == 128 ? 768 : 784, 520},
                                                   {.accumulate = accumulate, .optionals = accumulate, .gap = 8});
            judge(whole, made, program);
            judge(banded, made, std::string(program) + " in bands");
        }
    }
    judge(whole, swiglu_backward_in_place(), "in place");
    judge(banded, swiglu_backward_in_place(), "in place, in bands");
    judge(whole, gelu_backward_in_place(), "GELU in place");
    judge(banded, gelu_backward_in_place(), "GELU in place, in bands");
}

TEST_CASE("the oracle judges every FP8 program", "[gpu][oracle][f8]") {
    if (!has_hopper()) return;
    oracle::Oracle whole;
    oracle::Oracle banded(std::int64_t{3} << 19);  // three bands of w as bf16, and some 300 rows
    for (const cases::Program& program : cases::f8_programs())
        for (const bool optionals : {false, true}) {
            const GemmCase made = cases::make_case({program.name, 336, round_up(784, program.columns), 528},
                                                   {.accumulate = optionals, .optionals = optionals, .gap = 16});
            const cases::DeviceBuffers device(made.buffers, 23);
            // Transposed copies are judged by the copies by rows, and copies of dx by dx as stored.
            const std::set<std::string> follows{"y_t", "dz_t", "dx_f8", "dx_f8_t", "dx_amax"};
            judges_rightly(whole, device.memory(), made.op, program.name, launch_on_hopper, follows);
            judges_rightly(banded, device.memory(), made.op, program.name, launch_on_hopper, follows);
        }
    const GemmCase in_place = swiglu_backward_f8_in_place();
    for (oracle::Oracle* oracle : {&whole, &banded}) {
        const cases::DeviceBuffers device(in_place.buffers, 23);
        judges_rightly(*oracle, device.memory(), in_place.op, "SwiGLU in place", launch_on_hopper, {"dz_t"});
    }
}

TEST_CASE("the oracle refuses what it cannot check", "[gpu][oracle]") {
    if (!has_hopper()) return;
    const GemmCase made = cases::make_case({"WeightGradient", 328, 784, 520}, {.accumulate = true});
    const cases::DeviceBuffers device(made.buffers, 23);
    oracle::Oracle oracle;
    CHECK_THROWS_WITH(oracle.check(made.op, device.memory(), {}), Catch::Contains("grad was not captured"));
    oracle::Oracle tiny(1024);
    const auto before = tiny.capture(made.op, device.memory());
    CHECK_THROWS_WITH(tiny.check(made.op, device.memory(), before), Catch::Contains("work space"));
}

TEST_CASE("a copy that does not fit the device is refused by name", "[gpu][oracle]") {
    if (!has_hopper()) return;
    std::byte byte{};
    // The copy's memory is requested first, so the buffers are never touched.
    const View huge{0, DType::f32, 0, 1, std::int64_t{1} << 40, std::int64_t{1} << 40, 0};
    EmbedBackward op;
    op.grad = huge;
    oracle::Oracle oracle;
    CHECK_THROWS_WITH(oracle.capture(op, Memory(std::vector<std::byte*>{&byte})),
                      Catch::Contains("EmbedBackward's grad") && Catch::Contains("4398046511104 bytes"));
}
