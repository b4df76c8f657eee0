# cmake -DSOURCE=... -DOUTPUT=... -P SourceHash.cmake: writes a source file with the commit and one SHA-256 over the names
# and contents of every file under kernels/ and src/, and touches it only when it changes. With it a
# measurement names the code that it measured, committed or not.
include(${CMAKE_CURRENT_LIST_DIR}/GitCommit.cmake)
file(GLOB_RECURSE FILES RELATIVE ${SOURCE} ${SOURCE}/kernels/* ${SOURCE}/src/*)
list(SORT FILES)
set(SUMS "")
foreach(FILE IN LISTS FILES)
    file(SHA256 ${SOURCE}/${FILE} SUM)
    string(APPEND SUMS "${SUM} ${FILE}\n")
endforeach()
string(SHA256 HASH "${SUMS}")
set(TEXT "#include \"tools/bench/build_source.h\"

namespace coda::bench {
const char* build_commit() { return \"${COMMIT}\"; }
const char* build_source_hash() { return \"${HASH}\"; }
}  // namespace coda::bench
")
if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} OLD)
endif()
if(NOT "${OLD}" STREQUAL "${TEXT}")
    file(WRITE ${OUTPUT} "${TEXT}")
endif()
