# cmake -DSOURCE=... -DOUTPUT=... -P SourceHash.cmake: writes a source file with the commit and one SHA-256 over the names
# and contents of every file under kernels/ and src/, and touches it only when it changes. A measurement names with it
# the code that it measured, committed or not.
execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE COMMIT
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND git status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE CHANGES
                ERROR_QUIET)
if(NOT COMMIT)
    set(COMMIT "no git")
elseif(CHANGES)
    string(APPEND COMMIT "+")
endif()
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
