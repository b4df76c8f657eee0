# cmake -DSOURCE=... -DOUTPUT=... -DVERSION=... -DDETAILS=... -P BuildId.cmake: writes the build id's source file, and
# touches it only when it changes, so that an unchanged tree rebuilds nothing.
include(${CMAKE_CURRENT_LIST_DIR}/GitCommit.cmake)
set(TEXT "#include \"src/core/build_id.h\"

namespace coda {
std::string build_commit() { return \"${COMMIT}\"; }
std::string build_id() { return \"coda_train ${VERSION} (${COMMIT}, ${DETAILS})\"; }
}  // namespace coda
")
if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} OLD)
endif()
if(NOT "${OLD}" STREQUAL "${TEXT}")
    file(WRITE ${OUTPUT} "${TEXT}")
endif()
