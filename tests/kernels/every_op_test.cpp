// Every op of the instruction set, with the cases that its folder states: in bf16 storage against the same op in
// double, on the same operands. The test iterates the types of the variant, so no op is left out. The test in each op's
// folder checks the formulas themselves.
//
// Tolerances: what the oracle allows (kernels/oracle/tolerance.h). A value next to a midpoint of two FP8 codes, one in
// 2^20, may take the other in double: it is off by 2^-3 of itself, far below the tolerance of bf16.
#include <map>
#include <random>

#include "kernels/cases/op_cases.h"
#include "kernels/cpu/run.h"
#include "tests/catch.h"
#include "tests/kernels/fixture.h"

using namespace coda;
using namespace coda::test;

namespace {

/// A case's operands on the host, twice: bf16 ones as `storage`, and every floating-point one in double; but FP8 is
/// FP8.
struct Twice {
    DType storage;
    Buffers own{}, exact{};
    std::map<BufferId, std::pair<View, View>> views{};

    View add(const cases::Buffer& buffer, const std::vector<std::int32_t>& tokens, std::mt19937_64& bits) {
        const View& view = buffer.view;
        const bool real = view.dtype != DType::i32 && view.dtype != DType::u8 && !is_f8(view.dtype);
        const DType type = view.dtype == DType::bf16 ? storage : view.dtype;
        const View ours = own.matrix(type, view.rows, view.cols, view.ld);
        const View theirs = exact.matrix(real ? DType::f64 : view.dtype, view.rows, view.cols, view.ld);
        views[view.buffer] = {ours, theirs};
        if (view.dtype == DType::u8) return ours;
        double turns = 0;
        for (std::int64_t row = 0; row < view.rows; ++row)
            for (std::int64_t column = 0; column < view.cols; ++column) {
                const double value = value_of(buffer, row, column, tokens, turns, bits);
                own.set(ours, row, column, value);
                exact.set(theirs, row, column, real ? own.get(ours, row, column) : value);
            }
        return ours;
    }

    static double value_of(const cases::Buffer& buffer, std::int64_t row, std::int64_t column,
                           const std::vector<std::int32_t>& tokens, double& turns, std::mt19937_64& bits) {
        using cases::Fill;
        const double uniform = std::uniform_real_distribution<>()(bits);
        switch (buffer.fill) {
            case Fill::nothing: return 0;
            case Fill::normal: return buffer.scale * std::normal_distribution<>()(bits);
            case Fill::integers: return std::round((2 * uniform - 1) * buffer.scale);
            case Fill::positive: return buffer.scale * (0.5 + uniform);
            case Fill::ones: return buffer.scale;
            case Fill::angles:
                if (column % 2 == 0) turns = 2 * std::numbers::pi * uniform;
                return column % 2 == 0 ? std::cos(turns) : std::sin(turns);
            case Fill::positions:
                if (!tokens.empty()) return tokens[static_cast<std::size_t>(column)];
                return static_cast<double>((row * buffer.view.cols + column) % static_cast<std::int64_t>(buffer.scale));
            case Fill::targets: return std::floor(uniform * (buffer.scale + 1)) - 1;
            case Fill::int4: return cases::int4_word(column, static_cast<std::uint32_t>(bits()));
        }
        return 0;
    }
};

/// The op on the buffers' views in storage or, with `second`, on those in double.
template <class T>
T placed(const T& op, const Twice& twice, bool second) {
    T result = op;
    visit_operands(result, [&](const char*, auto& operand) {
        if (!operand) return;
        const auto& [ours, theirs] = twice.views.at(operand.buffer);
        const View& to = second ? theirs : ours;
        operand.buffer = to.buffer;
        operand.offset = to.offset;
        operand.dtype = to.dtype;
    });
    return result;
}

double relative_rms(const Twice& twice, const View& ours, const View& theirs) {
    double error = 0, size = 0;
    for (std::int64_t row = 0; row < ours.rows; ++row)
        for (std::int64_t column = 0; column < ours.cols; ++column) {
            const double got = twice.own.get(ours, row, column), want = twice.exact.get(theirs, row, column);
            error += (got - want) * (got - want);
            size += want * want;
        }
    return size == 0 ? std::sqrt(error) : std::sqrt(error / size);
}

template <class T>
void check(const Op& any, const std::vector<cases::Buffer>& buffers, const std::vector<std::int32_t>& tokens,
           const std::string& label, DType storage) {
    std::mt19937_64 bits(7);
    Twice twice{.storage = storage};
    for (std::size_t i = 0; i < buffers.size(); ++i)
        twice.add(buffers[i], i == 0 ? tokens : std::vector<std::int32_t>{}, bits);
    const T ours = placed(std::get<T>(any), twice, false), theirs = placed(std::get<T>(any), twice, true);
    cpu::run(ours, twice.own.memory());
    cpu::run(theirs, twice.exact.memory());
    std::vector<View> exact;
    for_each_operand(theirs, [&](const char*, const View& view, Access) { exact.push_back(view); });
    std::size_t index = 0;
    for_each_operand(ours, [&](const std::string& name, const View& got, Access access) {
        const View& want = exact[index++];
        if (access == Access::in || name == "scratch" || got.dtype == DType::i32) return;
        const double rms = relative_rms(twice, got, want);
        INFO(T::name << " " << label << " in " << name_of(storage) << ": " << name);
        CHECK(rms <= (storage == DType::f32 && !is_f8(got.dtype) ? 1e-5 : 4e-3));
    });
}

}  // namespace

TEST_CASE("every op of the instruction set in float and in bf16 agrees with itself in double") {
    cases::for_each_op_type([]<class T>() {
        const cases::OpCases all = cases::cases_of<T>();
        INFO(T::name);
        CHECK((all.programs.size() + all.f8.size() + all.others.size() > 0) != T::traits.has(Trait::between_ranks));
        for (const cases::Program& program : all.programs) {
            const cases::GemmCase made = program.make({program.name, 72, 256, 40}, {.optionals = true});
            REQUIRE(std::holds_alternative<T>(made.op));
            for (const DType storage : {DType::f32, DType::bf16})
                check<T>(made.op, made.buffers, {}, program.name, storage);
        }
        for (const cases::NamedCase& named : all.others) {
            const cases::OpCase made = named.make(cases::Size::test);
            REQUIRE(std::holds_alternative<T>(made.op));
            for (const DType storage : {DType::f32, DType::bf16})
                check<T>(made.op, made.buffers, made.tokens, made.shape, storage);
        }
    });
}

TEST_CASE("a GEMM program has its op's name, and words for its form") {
    cases::for_each_op_type([&]<class T>() {
        const cases::OpCases all = cases::cases_of<T>();
        const auto check_names = [](const std::vector<cases::Program>& programs, const std::string& name) {
            for (const cases::Program& program : programs) {
                INFO(program.name);
                CHECK((program.name == name || std::string(program.name).starts_with(name + " ")));
            }
        };
        check_names(all.programs, T::name);
        check_names(all.f8, std::string(T::name) + " f8");
    });
}

TEST_CASE("an unknown GEMM program is refused with the names that there are") {
    CHECK_THROWS_WITH(cases::make_case({"LinearNothing", 8, 8, 8}),
                      Catch::Contains("LinearNothing") && Catch::Contains("LinearRope"));
}
