// Standard input, output and error as a program is given them: they may be closed, and what takes the output may be
// full or gone.
#pragma once

#include <cstdio>
#include <string_view>

namespace coda {

/// Call it first. A descriptor 0, 1 or 2 that is closed is occupied, so that no file which is opened later gets its
/// number and is written into as if it were the terminal; using it still fails. A write into a pipe that nobody reads,
/// or beyond the limit of a file's size, fails like others instead of ending the process.
/// Throws Error when a closed descriptor cannot be occupied.
void prepare_standard_streams();

/// Writes to standard output, at once. Throws Error "standard output: " and the reason when it is closed or full.
void print(std::string_view text);        // through printable()
void print_bytes(std::string_view text);  // unchanged

/// Whether standard output is a terminal.
bool prints_to_terminal();

/// The last that is done with standard output: throws Error when anything written to it through stdio did not arrive.
void close_standard_output();

/// /dev/null, for a rank whose console output is not wanted.
std::FILE* null_stream();

}  // namespace coda
