// GEMM programs of FP8 factors against cpu::run on the same codes, on a Hopper GPU; and what promotion is for.
//
// Tolerances. fp32 and bf16 results: the op's (kernels/core/tolerance.h), for bf16 with both sides' rounding. Terms
// have mixed signs here, so promoted sums are no more than 0.05% off. Those of LinearRmsBackward, whose first interval
// is longer, are no more than 0.12% off (tests/kernels/f8_accumulation_test.cpp). FP8 results: where the accumulators
// lie on either side of a rounding boundary, an element differs by one code. With errors of 0.15% RMS that are 2% of
// them, and 1% RMS. LinearRmsBackward's codes of dx have in between its rounding to bf16, of which those near a tie
// differ: errors of 0.35%, 4% of the elements and 2% RMS. So they are also made from the dx that the kernel stored,
// with no difference at all. The largest dx may be the next bf16.
#include "kernels/core/f8.h"
#include "kernels/core/integers.h"
#include "kernels/oracle/tolerance.h"
#include "tests/hopper/gemm_check.h"

using namespace coda;
using namespace coda::test;

namespace {

constexpr double kOtherCodes = 1.5e-2;

bool promotes(const Op& op) {
    const auto* rms = std::get_if<LinearRmsBackward>(&op);
    return std::holds_alternative<WeightGradient>(op) || (rms != nullptr && rms->promotion() > 0);
}

double allowed(const Op& op, const std::string& name, const View& view) {
    const bool of_bf16 = std::holds_alternative<LinearRmsBackward>(op);
    if (is_f8(view.dtype)) return of_bf16 ? 2.5e-2 : kOtherCodes;
    if (name == "dx_amax") return 0x1p-7;
    constexpr double kBf16 = 2.3e-3;
    const double mixed_signs = of_bf16 ? 1.2e-3 : 5e-4;
    const bool rounded = view.dtype == DType::bf16;
    const double rms = promotes(op) ? mixed_signs + (rounded ? kBf16 : 0) : oracle::tolerance(op, name).rms;
    return rounded ? 2 * rms : rms;
}

/// The op for some of its rows.
LinearRmsBackward rows_of(LinearRmsBackward op, std::int64_t first, std::int64_t count) {
    const auto columns = [&](View view) {
        if (!view) return view;
        view.offset += first * size_of(view.dtype);
        view.cols = count;
        return view;
    };
    op.a = op.a.row_slice(first, count);
    op.x = op.x.row_slice(first, count);
    op.rstd = columns(op.rstd);
    op.dot = columns(op.dot);
    op.dx = {op.dx.row_slice(first, count), op.dx.beta};
    op.dgamma = op.dgamma.row_slice(first / op.tile, count / op.tile);
    if (op.dx_codes) op.dx_codes.rows = op.dx_codes.rows.row_slice(first, count);
    op.dx_codes.columns = columns(op.dx_codes.columns);
    return op;
}

/// Elements of a transposed copy that have another code than `rows`.
std::int64_t other_codes(const Bytes& bytes, const View& rows, const View& copy) {
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < rows.rows; ++row)
        for (std::int64_t column = 0; column < rows.cols; ++column)
            wrong += element(bytes, rows, row, column) != element(bytes, copy, column, paired_place(row));
    return wrong;
}

/// Elements of the FP8 copy of dx that are not dx as stored, rounded; as QuantiseF8 does it.
std::int64_t other_than_of_dx(const Bytes& bytes, const LinearRmsBackward& op) {
    const double scale = element(bytes, op.dx_codes.scale, 0, 0);
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < op.dx.rows; ++row)
        for (std::int64_t column = 0; column < op.dx.cols; ++column) {
            const F8E4M3 want(static_cast<float>(scale * element(bytes, op.dx, row, column)));
            wrong += element(bytes, op.dx_codes.rows, row, column) != static_cast<double>(static_cast<float>(want));
        }
    return wrong;
}

/// The largest magnitude of dx as stored, or `before`.
double amax_of_dx(const Bytes& bytes, const LinearRmsBackward& op, double before) {
    for (std::int64_t row = 0; row < op.dx.rows; ++row)
        for (std::int64_t column = 0; column < op.dx.cols; ++column)
            before = std::max(before, std::fabs(element(bytes, op.dx, row, column)));
    return before;
}

/// Whether the program has kernels for a gradient of that format.
bool built(const std::string& program, DType format) {
    return format == DType::f8e4m3 || program == "LinearRmsBackward f8" || program == "WeightGradient f8";
}

void check_f8(const Shape& shape, const CaseOptions& options, const hopper::Request& choice = {}) {
    const GemmCase made = cases::make_case(shape, options);
    const cases::DeviceBuffers device(made.buffers, 17);
    Bytes expected = download(made.buffers, device.memory());
    const auto* rms = std::get_if<LinearRmsBackward>(&made.op);
    const double before = rms != nullptr && rms->dx_codes ? element(expected, rms->dx_codes.amax, 0, 0) : 0;
    cpu::run(made.op, memory_of(expected));
    hopper::prepare(made.op, device.memory(), choice)(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    const Bytes got = download(made.buffers, device.memory());
    for_each_operand(made.op, [&](const std::string& name, const View& view, Access access) {
        if (view.dtype == DType::u8) return;  // scratch
        const auto i = static_cast<std::size_t>(view.buffer);
        INFO(shape.program << ", tile " << choice.candidate << ", M " << shape.m << " N " << shape.n << " K " << shape.k
                           << ": " << name);
        if (access == Access::in) {
            CHECK(got[i] == expected[i]);
            return;
        }
        const Difference found = difference(got[i], expected[i], view);
        const double bound = options.integers ? 0 : allowed(made.op, name, view);
        INFO("relative RMS " << found.rms << ", allowed " << bound);
        CHECK(found.rms <= bound);
    });
    INFO("M " << shape.m << " N " << shape.n << ", tile " << choice.candidate);
    std::visit(
        [&](const auto& op) {
            for_each_rounded(op, [&](const Rounded& codes) {
                if (codes.rows && codes.columns) CHECK(other_codes(got, codes.rows, codes.columns) == 0);
            });
        },
        made.op);
    if (rms != nullptr && rms->dx_codes) {
        CHECK(other_than_of_dx(got, *rms) == 0);
        CHECK(element(got, rms->dx_codes.amax, 0, 0) == amax_of_dx(got, *rms, before));
    }
}

}  // namespace

TEST_CASE("an FP8 GEMM of whole numbers is exact", "[gpu][f8]") {
    if (!has_hopper()) return;
    constexpr const char* kProgram = "WeightGradient f8";
    for (const bool accumulate : {false, true})
        for (const Shape& shape : {Shape{kProgram, 256, 256, 128}, Shape{kProgram, 128, 256, 16},
                                   Shape{kProgram, 512, 520, 1536}, Shape{kProgram, 200, 136, 272}})
            check_f8(shape, {.integers = true, .accumulate = accumulate});
}

// 576 rows and 960 columns are whole tiles of some configurations and ragged ones of others.
TEST_CASE("FP8 weight gradients in parts agree with the CPU in every tile, with any number of parts", "[gpu][f8]") {
    if (!has_hopper()) return;
    for (const DType format : {DType::f8e4m3, DType::f8e5m2})
        for (const auto& [out, in, tokens] : {std::tuple{576, 960, 8208}, {960, 576, 8192}}) {
            const Shape shape{"WeightGradient f8", out, in, tokens};
            CaseOptions options{.accumulate = out == 960, .optionals = true, .gradient_type = format};
            const GemmCase made = cases::make_case(shape, options);
            REQUIRE(std::get<WeightGradient>(made.op).parts() > 1);
            check_f8(shape, options);
            options.integers = true;
            const auto tiles = hopper::choose(made.op).candidates;
            REQUIRE(tiles.size() == 3);
            for (std::size_t tile = 0; tile < tiles.size(); ++tile) {
                hopper::Request choice;
                choice.candidate = static_cast<int>(tile);
                REQUIRE(hopper::choose(made.op, choice).splits > 1);
                for (choice.splits = 0; choice.splits <= 3; ++choice.splits) {
                    INFO(name_of(format) << ", " << choice.splits << " parts");
                    check_f8(shape, options, choice);
                }
            }
        }
}

TEST_CASE("FP8 programs agree with the CPU: every tile, format and rule of promotion", "[gpu][f8]") {
    if (!has_hopper()) return;
    for (const Program& program : cases::f8_programs())
        for (const DType format : {DType::f8e4m3, DType::f8e5m2}) {
            if (!built(program.name, format)) continue;
            for (const bool optionals : {false, true}) {
                const CaseOptions options{.accumulate = optionals,
                                          .optionals = optionals,
                                          .gap = optionals ? 16 : 0,
                                          .gradient_type = format};
                const auto shape = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
                    return Shape{program.name, m, round_up(n, program.columns), k};
                };
                const auto check = [&](const std::vector<Shape>& shapes) {
                    const auto tiles = hopper::choose(cases::make_case(shapes.front(), options).op).candidates;
                    for (std::size_t i = 0; i < tiles.size(); ++i) {
                        hopper::Request choice;
                        choice.candidate = static_cast<int>(i);
                        for (const Shape& each : shapes) check_f8(each, options, choice);
                    }
                };
                check({shape(784, 656, 208), shape(16, 136, 80), shape(2560, 1920, 2064)});
                // 192 divides N and 128 does not: few tiles, and several per consumer, the last one ragged.
                const std::string name = program.name;
                if (name == "LinearResidualRms f8" || name == "LinearRmsBackward f8" || name == "LinearHeadDot f8")
                    check({{program.name, 784, 576, 208}, {program.name, 65 * 256 + 16, 960, 208}});
                // Sums that are promoted, in tiles of their own.
                if (name == "LinearRmsBackward f8") check({shape(16, 136, 8208), shape(1040, 784, 8464)});
            }
        }
}

// A consumer issues k-tiles of its next tile during an epilogue. Run by 256 rows at a time, no consumer has a next
// tile.
TEST_CASE("an FP8 GEMM that begins tiles during epilogues has the bits of one that does not", "[gpu][f8]") {
    if (!has_hopper()) return;
    // Only promoted sums do, which begin behind kShortSum: a part of a k-tile more, whole intervals, and a part of one.
    for (const std::int64_t k : {8208, 8704, 9232})
        for (const bool optionals : {false, true}) {
            const Shape shape{"LinearRmsBackward f8", 8448, 784, k};
            const GemmCase made = cases::make_case(shape, {.accumulate = true, .optionals = optionals});
            const auto& whole = std::get<LinearRmsBackward>(made.op);
            const std::size_t tiles = hopper::choose(made.op).candidates.size();
            for (std::size_t i = 0; i < tiles; ++i) {
                hopper::Request choice;
                choice.candidate = static_cast<int>(i);
                const cases::DeviceBuffers device(made.buffers, 5), parts(made.buffers, 5);
                hopper::prepare(made.op, device.memory(), choice)(nullptr);
                constexpr std::int64_t kRows = 256;
                for (std::int64_t row = 0; row < shape.m; row += kRows)
                    hopper::prepare(rows_of(whole, row, kRows), parts.memory(), choice)(nullptr);
                CUDA_CHECK(cudaDeviceSynchronize());
                INFO("K " << k << ", copies " << optionals << ", tile " << i);
                CHECK((download(made.buffers, device.memory()) == download(made.buffers, parts.memory())));
            }
        }
    check_f8({"LinearRmsBackward f8", 8448, 784, 8208}, {.accumulate = true, .optionals = true});
}

TEST_CASE("LinearSwigluBackward has the same bits with the transposed codes of dz in place of z", "[gpu][f8]") {
    if (!has_hopper()) return;
    const GemmCase made = cases::make_case({"LinearSwigluBackward f8", 2576, 1920, 2064});
    const auto& apart = std::get<LinearSwigluBackward>(made.op);
    LinearSwigluBackward in_place = apart;
    in_place.dz.codes.columns = View(apart.z);
    const std::size_t tiles = hopper::choose(made.op).candidates.size();
    for (std::size_t i = 0; i < tiles; ++i) {
        hopper::Request choice;
        choice.candidate = static_cast<int>(i);
        const auto result = [&](const LinearSwigluBackward& op) {
            const cases::DeviceBuffers device(made.buffers, 5);
            hopper::prepare(op, device.memory(), choice)(nullptr);
            CUDA_CHECK(cudaDeviceSynchronize());
            return download(made.buffers, device.memory());
        };
        const Bytes two = result(apart), one = result(in_place);
        const auto of = [](const Bytes& bytes, const View& view) {
            return bytes[static_cast<std::size_t>(view.buffer)];
        };
        INFO("tile " << i);
        const Rounded& codes = apart.dz.codes;
        CHECK((of(one, codes.rows) == of(two, codes.rows)));
        CHECK((of(one, apart.z) == of(two, codes.columns)));
        CHECK((of(one, apart.dot) == of(two, apart.dot)));
        CHECK((of(one, codes.amax) == of(two, codes.amax)));
    }
}

// Both runs use the same memory: an SM must not take the first run's largest magnitudes for the second run's, which
// begin at 0.
TEST_CASE("two runs of FP8 programs give the same bits", "[gpu][f8]") {
    if (!has_hopper()) return;
    for (const Program& program : cases::f8_programs()) {
        const GemmCase made = cases::make_case({program.name, 1536, 1536, 512}, {.optionals = true});
        const cases::DeviceBuffers device(made.buffers, 5);
        const Bytes inputs = download(made.buffers, device.memory());
        Bytes first;
        for (int run = 0; run < 2; ++run) {
            for (std::size_t i = 0; i < inputs.size(); ++i)
                CUDA_CHECK(cudaMemcpy(device.memory().address(made.buffers[i].view), inputs[i].data(), inputs[i].size(),
                                      cudaMemcpyHostToDevice));
            std::visit(
                [&](const auto& op) {
                    for_each_rounded(op, [&](const Rounded& codes) {
                        CUDA_CHECK(cudaMemset(device.memory().address(codes.amax), 0, sizeof(float)));
                    });
                },
                made.op);
            hopper::prepare(made.op, device.memory())(nullptr);
            CUDA_CHECK(cudaDeviceSynchronize());
            Bytes bytes = download(made.buffers, device.memory());
            INFO(program.name);
            if (run == 1) CHECK(bytes == first);
            first = std::move(bytes);
        }
    }
}

// Terms of one sign over 32768 tokens lose what the rule of kernels/core/tolerance.h says, from which tolerances
// follow.
TEST_CASE("promotion keeps a long FP8 sum unbiased", "[gpu][f8]") {
    if (!has_hopper()) return;
    constexpr std::int64_t kTokens = 32768;
    GemmCase made = cases::make_case({"WeightGradient f8", 256, 256, kTokens});
    for (cases::Buffer& buffer : made.buffers)
        if (is_f8(buffer.view.dtype)) buffer.fill = cases::Fill::positive;
    const cases::DeviceBuffers device(made.buffers, 3);
    Bytes expected = download(made.buffers, device.memory());
    cpu::run(made.op, memory_of(expected));
    hopper::prepare(made.op, device.memory())(nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    const Bytes got = download(made.buffers, device.memory());
    const View grad = std::get<WeightGradient>(made.op).grad;
    double difference = 0, sum = 0;
    for (std::int64_t row = 0; row < grad.rows; ++row)
        for (std::int64_t column = 0; column < grad.cols; ++column) {
            difference += element(got, grad, row, column) - element(expected, grad, row, column);
            sum += element(expected, grad, row, column);
        }
    const double bias = std::fabs(difference / sum);
    INFO("bias " << bias);
    CHECK(bias == Approx(9.4e-4).epsilon(0.1));
    CHECK(bias <= f8_product_error(kTokens, kPromotionOverTokens, SumOver::tokens));
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
    CHECK_THAT(refusal(cases::make_case({"LinearHeadDot f8", 64, 128, 72}).op), Catch::Contains("K of 16"));
    CHECK_THAT(refusal(cases::make_case({"LinearSwigluBackward f8", 64, 64, 64}, {.gradient_type = DType::f8e5m2}).op),
               Catch::Contains("operand a is f8e5m2, expected f8e4m3"));
    CHECK_THAT(refusal(cases::make_case({"LinearSwigluBackward f8", 72, 64, 64}).op),
               Catch::Contains("M is 72, not a multiple of 16"));
    CHECK_THAT(refusal(cases::make_case({"LinearSwiglu f8", 72, 64, 64}).op),
               Catch::Contains("M is 72, not a multiple of 16"));
    CHECK(refusal(cases::make_case({"LinearSwiglu f8", 64, 64, 64}).op) == "accepted");
    const Op rms = cases::make_case({"LinearRmsBackward f8", 64, 64, 64}).op;
    CHECK(refusal(rms) == "accepted");
    const Op copies = cases::make_case({"LinearRmsBackward f8", 64, 64, 64}, {.optionals = true}).op;
    CHECK(refusal(copies) == "accepted");
    Op incomplete = copies;
    std::get<LinearRmsBackward>(incomplete).dx_codes.columns = View{};
    CHECK_THAT(refusal(incomplete), Catch::Contains("operand dx_f8_t is missing"));
    CHECK_THAT(refusal(cases::make_case({"LinearRmsBackward f8", 72, 64, 64}, {.optionals = true}).op),
               Catch::Contains("M is 72, not a multiple of 16"));
    Op beside_bf16 = cases::make_case({"LinearRmsBackward", 64, 64, 64}).op;
    std::get<LinearRmsBackward>(beside_bf16).dx_codes = std::get<LinearRmsBackward>(copies).dx_codes;
    CHECK_THAT(refusal(beside_bf16), Catch::Contains("dx_scale goes with FP8 factors, and a is bf16"));
    Op rope = cases::make_case({"LinearRope f8", 64, 128, 64}).op;
    CHECK(refusal(rope) == "accepted");
    std::get<LinearRope>(rope).rstd = std::get<LinearRope>(rope).positions;
    CHECK_THAT(refusal(rope), Catch::Contains("rstd must be absent"));
    Op residual = cases::make_case({"LinearResidualRms f8", 64, 64, 64}).op;
    CHECK(refusal(residual) == "accepted");
    std::get<LinearResidualRms>(residual).w.undo = View{};
    CHECK_THAT(refusal(residual), Catch::Contains("operand undo is missing"));
    Op bf16 = cases::make_case({"LinearHeadDot", 64, 128, 64}).op;
    std::get<LinearHeadDot>(bf16).w.undo = std::get<LinearHeadDot>(bf16).delta;
    CHECK_THAT(refusal(bf16), Catch::Contains("undo goes with FP8 factors, and a is bf16"));
    Op gradient = cases::make_case({"WeightGradient f8", 64, 64, 64}).op;
    std::get<WeightGradient>(gradient).x.order = ColumnOrder::natural;
    CHECK_THAT(refusal(gradient), Catch::Contains("tokens in different orders"));
}
