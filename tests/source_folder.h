// Where tests find the files of the source tree: __FILE__ may be relative to the folder of the build.
#pragma once

#include <filesystem>

namespace coda::test {

/// The root of the source tree that the tests were built from.
std::filesystem::path source_folder();

}  // namespace coda::test
