// What is at a path, in words: a program that opens a FIFO as if it were a file waits for ever.
#pragma once

#include <filesystem>

namespace coda {

/// "a folder", "a FIFO", "a device", "a socket", "a symbolic link", "a file"; "nothing" where nothing is.
const char* file_kind(std::filesystem::file_type type);

}  // namespace coda
