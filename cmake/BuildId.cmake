# cmake -DSOURCE=... -DOUTPUT=... -DVERSION=... -DDETAILS=... -P BuildId.cmake: writes the build id's source file, and
# touches it only when it changes, so that an unchanged tree rebuilds nothing.
execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE COMMIT
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND git status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE CHANGES
                ERROR_QUIET)
if(NOT COMMIT)
    set(COMMIT "no git")
elseif(CHANGES)
    string(APPEND COMMIT "+")
endif()
set(TEXT "#include \"src/core/build_id.h\"

namespace coda {
std::string build_id() { return \"coda_train ${VERSION} (${COMMIT}, ${DETAILS})\"; }
}  // namespace coda
")
if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} OLD)
endif()
if(NOT "${OLD}" STREQUAL "${TEXT}")
    file(WRITE ${OUTPUT} "${TEXT}")
endif()
