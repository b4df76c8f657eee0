#include "tests/source_folder.h"

namespace coda::test {

std::filesystem::path source_folder() { return CODA_SOURCE_FOLDER; }

}  // namespace coda::test
