// Where a text is divided into training and validation.
#pragma once

#include <cstdint>
#include <string>

namespace coda {

/// The byte offset after the last blank line ("\n\n") that ends within the first floor((1 - fraction) * n) of the n
/// characters of `path`, or the offset of that character if there is no such line. Reads the file twice, a block at a
/// time. Throws Error for standard input, which cannot be read twice.
std::int64_t blank_line_split(const std::string& path, double fraction);

}  // namespace coda
