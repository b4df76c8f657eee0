#include "src/core/choice_options.h"

#include <algorithm>
#include <cmath>

#include "src/core/errors.h"

namespace coda {

std::optional<ChoiceProblem> choice_problem(const ChoiceOptions& options) {
    const auto problem = [](const char* option, auto value, const char* range) {
        return ChoiceProblem{option, text("is ", value, ", must be ", range)};
    };
    // Written so that NaN is refused.
    if (!(options.temperature >= 0 && std::isfinite(options.temperature)))
        return problem("temperature", options.temperature, "a number from 0 (0: the likeliest token)");
    if (options.top_k < 0) return problem("top_k", options.top_k, "a whole number from 0 (0: every token)");
    if (!(options.top_p >= 0 && options.top_p <= 1))
        return problem("top_p", options.top_p, "a number from 0 to 1 (1: every token)");
    if (!(options.min_p >= 0 && options.min_p <= 1))
        return problem("min_p", options.min_p, "a number from 0 to 1 (0: every token)");
    if (!(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty)))
        return problem("repetition_penalty", options.repetition_penalty, "a number above 0 (1: no penalty)");
    return std::nullopt;
}

void require_choice_options(const ChoiceOptions& options, const std::string& where) {
    const std::optional<ChoiceProblem> problem = choice_problem(options);
    if (!problem) return;
    std::string name = problem->option;
    if (where == "--") std::replace(name.begin(), name.end(), '_', '-');
    throw UsageError(text(where, name, ": ", problem->text));
}

}  // namespace coda
