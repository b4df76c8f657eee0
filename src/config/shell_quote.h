// Quotes arguments so that a POSIX shell (with $'...', as in bash and zsh) reads them back unchanged.
#pragma once

#include <string>

namespace coda {

/// `word`, quoted where it must be. Always printable ASCII or valid UTF-8, so it can stand in JSON and on a terminal.
std::string quote(const std::string& word);

/// All of argv, quoted and joined by spaces.
std::string quote_command(int argc, const char* const* argv);

}  // namespace coda
