# cmake --install: the programs in bin/, libcoda with its header, and share/coda_train/ with the configurations, the
# scripts of data/ and the documents in the repository's layout, so that links between documents hold there too. The
# component "wheel" is what the Python package coda_torch holds of it (pyproject.toml).
include_guard()

install(TARGETS coda_train coda_generate RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET coda_tokenize)
    install(TARGETS coda_tokenize RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# Not CMAKE_INSTALL_LIBDIR: the package looks in lib.
install(TARGETS coda_shared LIBRARY DESTINATION lib COMPONENT wheel NAMELINK_COMPONENT development)
install(FILES src/library/coda.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT wheel)

file(GLOB configurations CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/configs/*.json)
install(FILES ${configurations} DESTINATION ${CODA_SHARE}/configs COMPONENT wheel)

file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/data/*.py)
set(modules ${CMAKE_SOURCE_DIR}/data/fetch.py ${CMAKE_SOURCE_DIR}/data/prepare.py)
list(REMOVE_ITEM scripts ${modules})
install(PROGRAMS ${scripts} DESTINATION ${CODA_SHARE}/data COMPONENT wheel)
install(FILES ${modules} DESTINATION ${CODA_SHARE}/data COMPONENT wheel)

install(FILES README.md LICENSE CHANGELOG.md CONTRIBUTING.md DESTINATION ${CODA_SHARE} OPTIONAL)
install(DIRECTORY docs DESTINATION ${CODA_SHARE} OPTIONAL)
