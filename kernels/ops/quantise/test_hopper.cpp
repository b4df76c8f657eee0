// QuantiseF8 of the Hopper executor against cpu::run: the same bits everywhere, as a code is one rounding of products
// of two factors, and amax one of those.
#include <cmath>
#include <limits>

#include "kernels/cpu/run.h"
#include "tests/hopper/gpu_copy.h"

using namespace coda;
using namespace coda::test;

namespace {

struct Form {
    std::int64_t tokens, width;
    bool rstd, rows, columns, amax;
    ColumnOrder order = ColumnOrder::paired;
    std::int64_t gap = 0;
    DType format = DType::f8e4m3;
};

QuantiseF8 made(Buffers& buffers, const Form& form) {
    QuantiseF8 op;
    op.x = buffers.random(DType::bf16, form.tokens, form.width, -40, 40, form.width + form.gap);
    if (form.rstd) op.rstd = buffers.random(DType::f32, 1, form.tokens, 0.01, 1.1);
    op.codes.scale = buffers.scalar(DType::f32, 16);
    if (form.rows) op.codes.rows = buffers.matrix(form.format, form.tokens, form.width, form.width + form.gap);
    if (form.columns) {
        op.codes.columns = buffers.matrix(form.format, form.width, form.tokens, form.tokens + form.gap);
        op.codes.columns.order = form.order;
    }
    if (form.amax) op.codes.amax = buffers.scalar(DType::f32, 0.5);
    return op;
}

void require_same(const QuantiseF8& op, const Buffers& got, const Buffers& expected) {
    for_each_operand(op, [&](const char* name, const View& view, Access) {
        INFO(name);
        REQUIRE((got.bits(view) == expected.bits(view)));
    });
}

}  // namespace

TEST_CASE("QuantiseF8 on the GPU has the CPU's bits", "[gpu][f8]") {
    if (!has_hopper()) return;
    constexpr auto kNatural = ColumnOrder::natural;
    for (const auto& [tokens, width] :
         {std::pair{16, 16}, {128, 128}, {112, 144}, {144, 112}, {272, 400}, {1040, 2048}, {2048, 1040}})
        for (const std::int64_t gap : {0, 16})
            for (const Form& form :
                 {Form{tokens, width, true, true, true, true}, Form{tokens, width, false, true, true, true, kNatural},
                  Form{tokens, width, true, false, true, true},
                  Form{tokens, width, false, false, true, false, kNatural},
                  Form{tokens, width, true, true, true, true, ColumnOrder::paired, 0, DType::f8e5m2},
                  Form{tokens, width, true, true, false, true}, Form{tokens - 15, width, true, true, false, true},
                  Form{tokens + 3, width, false, false, false, true}}) {
                Form with_gap = form;
                with_gap.gap = gap;
                INFO("M " << form.tokens << ", N " << width << ", gap " << gap << ", rows " << form.rows << ", columns "
                          << form.columns << ", paired " << (form.order != kNatural));
                Buffers expected, got, again;
                const QuantiseF8 op = made(expected, with_gap);
                cpu::run(op, expected.memory());
                run_on_gpu(made(got, with_gap), got);
                require_same(op, got, expected);
                run_on_gpu(made(again, with_gap), again);
                require_same(op, again, got);
            }
}

TEST_CASE("QuantiseF8 on the GPU: every bf16, and the largest anywhere in a tile raises amax", "[gpu][f8]") {
    if (!has_hopper()) return;
    const DType format = GENERATE(DType::f8e4m3, DType::f8e5m2);
    const Form form{256, 256, false, true, true, true, ColumnOrder::paired, 0, format};
    for (const double scale : {0x1p-20, 1.0, 0x1p40}) {
        Buffers expected, got;
        const QuantiseF8 op = made(expected, form);
        QuantiseF8 same = made(got, form);
        for (Buffers* buffers : {&expected, &got}) {
            buffers->set(op.codes.scale, 0, 0, scale);
            for (int bits = 0; bits < 65536; ++bits) {
                Bf16 value;
                value.bits = static_cast<std::uint16_t>(bits);
                buffers->set(op.x, bits / 256, bits % 256, static_cast<double>(static_cast<float>(value)));
            }
        }
        cpu::run(op, expected.memory());
        run_on_gpu(same, got);
        require_same(op, got, expected);
        REQUIRE(got.get(op.codes.amax, 0, 0) == std::numeric_limits<double>::infinity());
    }
    for (std::int64_t row = 0; row < 256; row += 7)
        for (std::int64_t column = row % 5; column < 256; column += 51) {
            Buffers got;
            const QuantiseF8 op = made(got, form);
            got.set(op.x, row, column, -44);
            run_on_gpu(op, got);
            REQUIRE(got.get(op.codes.amax, 0, 0) == 44);
        }
}

TEST_CASE("QuantiseF8 on the GPU refuses what its vectors do not fit", "[f8]") {
    const auto refused = [](const Form& form) -> std::string {
        Buffers buffers;
        try {
            hopper::choose(Op(made(buffers, form)));
        } catch (const Error& error) {
            return error.what();
        }
        return "accepted";
    };
    constexpr auto kPaired = ColumnOrder::paired;
    CHECK(refused({32, 32, true, true, true, true}) == "accepted");
    CHECK(refused({33, 32, true, true, false, true}) == "accepted");
    CHECK_THAT(refused({24, 32, true, true, true, true}), Catch::Contains("M is 24, not a multiple of 16"));
    CHECK_THAT(refused({32, 24, true, true, true, true}), Catch::Contains("N is 24, not a multiple of 16"));
    CHECK_THAT(refused({32, 32, true, true, false, true, kPaired, 8}),
               Catch::Contains("rows of rows (32 elements, 40 apart) are not whole vectors of 16 bytes"));
    CHECK_THAT(refused({32, 32, true, false, true, true, kPaired, 8}), Catch::Contains("rows of columns"));
    CHECK_THAT(refused({32, 32, true, false, false, true, kPaired, 4}), Catch::Contains("rows of x"));
    CHECK_THAT(refused({32, 32, true, false, false, false}), Catch::Contains("it would write nothing"));
}
