// Reads a JSON file; errors name file, line and column.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace coda {

/// Parses plain JSON (no comments). `file` is the name used in errors. Throws Error "FILE:LINE:COLUMN: what" for a
/// syntax error or a NUL byte, and Error naming the file for a key given twice in one object, a number that overflows,
/// or absurd nesting.
nlohmann::json parse_json_text(const std::string& content, const std::string& file);

/// parse_json_text of a file's content. Also throws Error naming `path` when it cannot be read, is over 16 MiB or is no
/// regular file: a FIFO would be waited for.
nlohmann::json read_json_file(const std::string& path);

}  // namespace coda
