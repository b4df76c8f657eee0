#include "src/generate/pass_launches.h"

#include <utility>

#include "src/core/errors.h"

namespace coda {

PassLaunches::PassLaunches(Executor& executor, const Schedules& schedules, std::function<void(Pass)> run)
    : executor_(executor), sequences_(schedules.host.sequences), run_(std::move(run)) {}

std::vector<std::int32_t> PassLaunches::read(const View& per_row) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(per_row.cols));
    executor_.download(per_row, values.data());
    return values;
}

DecodedSteps PassLaunches::run(int steps, const std::function<bool()>& /*cancelled*/) {
    require(steps == 1, "a pass of ", steps, " steps: it is one");
    run_(Pass::decode);
    DecodedSteps made{.tokens = read(sequences_.token), .states = read(sequences_.state)};
    for (std::size_t row = 0; row < made.states.size(); ++row) {
        const auto state = static_cast<RowState>(made.states[row]);
        if (state == RowState::idle || state == RowState::failed) made.tokens[row] = -1;
    }
    return made;
}

}  // namespace coda
