# Compile options that every target of this project uses, as the interface target coda_options.
include_guard()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(coda_options INTERFACE)
target_include_directories(coda_options INTERFACE ${CMAKE_SOURCE_DIR})
# The baseline is x86-64-v3 (AVX2, FMA) rather than -march=native: a binary moves between machines and gives the same bits.
target_compile_options(coda_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Werror -march=x86-64-v3 -ffp-contract=fast>)
if(CODA_SANITIZE)
    target_compile_options(coda_options INTERFACE
        $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer>)
    target_link_options(coda_options INTERFACE -fsanitize=address,undefined)
endif()
