// The FP8 forms of GEMM programs against cpu::run on the same 8-bit operands, on a Hopper GPU; and what promotion is
// for.
//
// Tolerances. fp32 and bf16 results: the op's (kernels/core/tolerance.h), for bf16 with both sides' rounding. FP8
// results: where the accumulators lie on either side of a rounding boundary, an element differs by one code. With
// errors of 0.15% RMS that are 2% of them, and 1% RMS.
#include "kernels/core/float8.h"
#include "kernels/oracle/tolerance.h"
#include "tests/hopper/gemm_check.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr double kOtherCodes = 1.5e-2;

double allowed(const Op& op, const std::string& name, const View& view) {
    if (is_f8(view.dtype)) return kOtherCodes;
    const double rms = oracle::tolerance(op, name).rms;
    return view.dtype == DType::bf16 ? 2 * rms : rms;
}

Op promoted(Op op, std::int64_t promotion) {
    std::visit(
        [&](auto& concrete) {
            if constexpr (requires { concrete.promotion; }) concrete.promotion = promotion;
        },
        op);
    return op;
}

void check_f8(const Shape& shape, const CaseOptions& options, const hopper::Request& choice = {}) {
    const GemmCase made = cases::make_case(shape, options);
    const cases::DeviceBuffers device(made.buffers, 17);
    Bytes expected = download(made.buffers, device.memory());
    cpu::run(made.op, memory_of(expected));
    hopper::prepare(made.op, device.memory(), choice)(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    const Bytes got = download(made.buffers, device.memory());
    for_each_operand(made.op, [&](const std::string& name, const View& view, Access access) {
        const auto i = static_cast<std::size_t>(view.buffer);
        INFO(shape.program << ", tile " << choice.candidate << ", promotion " << options.promotion << ", M " << shape.m
                           << " N " << shape.n << " K " << shape.k << ": " << name);
        if (access == Access::in) {
            CHECK(got[i] == expected[i]);
            return;
        }
        const Difference found = difference(got[i], expected[i], view);
        const double bound = options.integers ? 0 : allowed(made.op, name, view);
        INFO("relative RMS " << found.rms << ", allowed " << bound);
        CHECK(found.rms <= bound);
    });
    if (const auto* op = std::get_if<LinearSwigluBackwardF8>(&made.op)) {
        std::int64_t wrong = 0;
        for (std::int64_t row = 0; row < op->dz.rows; ++row)
            for (std::int64_t column = 0; column < op->dz.cols; ++column)
                wrong += element(got, op->dz, row, column) != element(got, op->dz_t, column, paired_place(row));
        INFO("M " << shape.m << " N " << shape.n << ", tile " << choice.candidate);
        CHECK(wrong == 0);
    }
}

}  // namespace

TEST_CASE("FP8 GEMMs of whole numbers are exact", "[gpu][f8]") {
    if (!has_hopper()) return;
    for (const char* program : {"LinearF8F32", "WeightGradientF8"})
        for (const std::int64_t promotion : {0, 256, 512})
            for (const bool accumulate : {false, true})
                for (const Shape& shape : {Shape{program, 256, 256, 128}, Shape{program, 128, 256, 16},
                                           Shape{program, 512, 520, 1536}, Shape{program, 200, 136, 272}})
                    check_f8(shape, {.integers = true, .accumulate = accumulate, .promotion = promotion});
}

TEST_CASE("FP8 programs agree with the CPU: every tile, promotion and format", "[gpu][f8]") {
    if (!has_hopper()) return;
    for (const Program& program : cases::f8_programs())
        for (const std::int64_t promotion : {0, 256, 512})
            for (const DType format : {DType::f8e4m3, DType::f8e5m2}) {
                const bool swiglu = std::string(program.name) == "LinearSwigluBackwardF8";
                if (swiglu ? promotion > 0 || format == DType::f8e5m2 : promotion < 512 && format == DType::f8e5m2)
                    continue;
                for (const bool optionals : {false, true}) {
                    const CaseOptions options{.accumulate = !swiglu && optionals,
                                              .optionals = optionals,
                                              .gap = optionals ? 16 : 0,
                                              .promotion = promotion,
                                              .gradient_type = format};
                    const Shape ragged{program.name, 784, 656, 208}, large{program.name, 2560, 1920, 2064};
                    const auto tiles = hopper::choose(cases::make_case(ragged, options).op).candidates;
                    for (std::size_t i = 0; i < tiles.size(); ++i) {
                        hopper::Request choice;
                        choice.candidate = static_cast<int>(i);
                        check_f8(ragged, options, choice);
                        check_f8({program.name, 16, 136, 80}, options, choice);
                        check_f8(large, options, choice);
                    }
                }
            }
}

TEST_CASE("two runs of FP8 programs give the same bits", "[gpu][f8]") {
    if (!has_hopper()) return;
    for (const Program& program : cases::f8_programs()) {
        const GemmCase made = cases::make_case({program.name, 1536, 1536, 512}, {.optionals = true});
        Bytes first;
        for (int run = 0; run < 2; ++run) {
            const cases::DeviceBuffers device(made.buffers, 5);
            hopper::prepare(made.op, device.memory())(nullptr);
            CUDA_CHECK(cudaDeviceSynchronize());
            Bytes bytes = download(made.buffers, device.memory());
            INFO(program.name);
            if (run == 1) CHECK(bytes == first);
            first = std::move(bytes);
        }
    }
}

// Terms of one sign over 32768 tokens, the worst case. The tensor cores keep 14 bits of a sum, so each product that is
// added loses up to 2^-13 of it, on average half. Of n equal products the sum that the i-th meets is i of them, and all
// lose n / 2 times 2^-14 of the result: at most 1.6% with n 512, 0.8% with 256, everything where n is in the thousands.
TEST_CASE("promotion keeps a long FP8 sum unbiased", "[gpu][f8]") {
    if (!has_hopper()) return;
    constexpr std::int64_t kTokens = 32768;
    GemmCase made = cases::make_case({"WeightGradientF8", 256, 256, kTokens});
    for (cases::Buffer& buffer : made.buffers)
        if (is_f8(buffer.view.dtype)) buffer.fill = cases::Fill::positive;
    const auto bias = [&](std::int64_t promotion) {
        const Op op = promoted(made.op, promotion);
        const cases::DeviceBuffers device(made.buffers, 3);
        Bytes expected = download(made.buffers, device.memory());
        cpu::run(op, memory_of(expected));
        hopper::prepare(op, device.memory())(nullptr);
        CUDA_CHECK(cudaDeviceSynchronize());
        const Bytes got = download(made.buffers, device.memory());
        const View grad = std::get<WeightGradient>(op).grad;
        double difference = 0, sum = 0;
        for (std::int64_t row = 0; row < grad.rows; ++row)
            for (std::int64_t column = 0; column < grad.cols; ++column) {
                difference += element(got, grad, row, column) - element(expected, grad, row, column);
                sum += element(expected, grad, row, column);
            }
        return std::fabs(difference / sum);
    };
    const double none = bias(0), wide = bias(512), narrow = bias(256);
    INFO("bias without promotion " << none << ", with 512 " << wide << ", with 256 " << narrow);
    CHECK(narrow <= 256 * 0x1p-15);
    CHECK(wide <= 512 * 0x1p-15);
    CHECK(narrow < wide);
    CHECK(none > 0.1);
}

TEST_CASE("Hopper refuses FP8 operands that its kernels do not take", "[f8]") {
    const auto refusal = [](const Op& op) -> std::string {
        try {
            hopper::choose(op);
        } catch (const Error& error) {
            return error.what();
        }
        return "accepted";
    };
    const Op linear = cases::make_case({"LinearF8", 64, 64, 64}).op;
    CHECK(refusal(linear) == "accepted");
    CHECK_THAT(refusal(promoted(linear, 128)),
               Catch::Contains("promotion is 128; kernels were built for 0, 256 and 512"));
    CHECK_THAT(refusal(cases::make_case({"LinearF8", 64, 64, 72}).op), Catch::Contains("K of 16"));
    CHECK_THAT(refusal(cases::make_case({"LinearF8", 64, 64, 64}, {.gradient_type = DType::f8e5m2}).op),
               Catch::Contains("with f8e5m2 for 512"));
    CHECK_THAT(refusal(cases::make_case({"LinearSwigluBackwardF8", 72, 64, 64}).op),
               Catch::Contains("M is 72, not a multiple of 16"));
    Op gradient = cases::make_case({"WeightGradientF8", 64, 64, 64}).op;
    std::get<WeightGradient>(gradient).x.order = ColumnOrder::natural;
    CHECK_THAT(refusal(gradient), Catch::Contains("tokens in different orders"));
}
