# Where the program finds what ships with it: share/coda_train relative to the folder of the programs, installed or not.
include_guard()
include(GNUInstallDirs)

set(CODA_SHARE ${CMAKE_INSTALL_DATADIR}/coda_train)
file(RELATIVE_PATH CODA_SHARE_FROM_BIN ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_DATADIR}/coda_train)

# In a build tree it leads to the source tree.
foreach(folder configs data)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/coda_train)
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${folder} ${CMAKE_BINARY_DIR}/share/coda_train/${folder} SYMBOLIC)
endforeach()
