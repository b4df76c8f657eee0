// The oracle of ChooseToken against right results and against a wrong element of each operand.
#include "kernels/cases/op_cases.h"
#include "tests/hopper/oracle_plants.h"

using namespace coda;
using namespace coda::test;

TEST_CASE("the oracle names what is wrong with a choice", "[gpu][oracle]") {
    if (!has_hopper()) return;
    using Names = std::set<std::string>;
    oracle::Oracle oracle;
    for (const cases::NamedCase& made_by : cases::cases_of<ChooseToken>().others) {
        const cases::OpCase made = made_by.make(cases::Size::test);
        const auto& op = std::get<ChooseToken>(made.op);
        const cases::DeviceBuffers device(made.buffers, 29);
        const Memory& memory = device.memory();
        CUDA_CHECK(
            cudaMemcpy(memory.address(op.options), made.tokens.data(), 4 * made.tokens.size(), cudaMemcpyHostToDevice));
        INFO(made.shape);
        for (int step = 0; step < 5; ++step) CHECK(named(oracle, memory, op, op) == Names{});
        for (const WrittenPart& part : written_parts(op)) {
            const Names found = named(oracle, memory, op, op, [&] {
                Planting wrong(part.view, memory);
                wrong.flip_last_bit(part.view.rows / 2, part.view.cols / 2);
                wrong.keep();
            });
            CHECK(found == Names{part.name});
            alter(op.state, memory, [](auto, auto, double) { return static_cast<double>(RowState::running); });
        }
        // A row that does not run.
        alter(op.state, memory, [](auto row, auto column, double) { return row == 0 && column == 1 ? 0.0 : 1.0; });
        CHECK(named(oracle, memory, op, op) == Names{});
    }
}
