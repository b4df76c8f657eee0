// Which options of the choice of a token are valid.
#pragma once

#include <optional>
#include <string>

#include "kernels/math/sampling.h"

namespace coda {

/// What is wrong with an option, and its name, such as "top_p".
struct ChoiceProblem {
    std::string option;
    std::string text;  // such as "is 1.5, must be a number from 0 to 1 (1: every token)"
};

/// The first option that is not valid.
std::optional<ChoiceProblem> choice_problem(const ChoiceOptions& options);

/// Throws UsageError for options that are not valid, with the option's name after `where`: "--" makes it the flag
/// --top-p, anything else, such as "line 3: ", precedes top_p.
void require_choice_options(const ChoiceOptions& options, const std::string& where);

}  // namespace coda
