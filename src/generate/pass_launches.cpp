#include "src/generate/pass_launches.h"

#include <utility>

#include "src/core/errors.h"

namespace coda {

PassLaunches::PassLaunches(Executor& executor, const Schedules& schedules, std::function<void(Pass)> run)
    : executor_(executor), sequences_(schedules.host.sequences), run_(std::move(run)) {}

std::vector<std::int32_t> PassLaunches::read(const View& per_slot) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(per_slot.cols));
    executor_.download(per_slot, values.data());
    return values;
}

DecodedSteps PassLaunches::run(int steps, const std::function<bool()>& /*cancelled*/) {
    require(steps == 1, "a pass of ", steps, " steps: it is one");
    run_(Pass::decode);
    DecodedSteps made{.tokens = read(sequences_.token), .states = read(sequences_.state)};
    for (std::size_t slot = 0; slot < made.states.size(); ++slot) {
        const auto state = static_cast<RowState>(made.states[slot]);
        if (state == RowState::idle || state == RowState::failed) made.tokens[slot] = -1;
    }
    return made;
}

}  // namespace coda
