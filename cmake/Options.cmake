# Compile options that every target of this project uses, as the interface target coda_options.
include_guard()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Compilers get paths relative to the build folder, so that presets, worktrees and clones share what was compiled.
    # __FILE__ is then relative too: tests find their files by source_folder() (tests/source_folder.h).
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
        CCACHE_ABSSTDERR=1 ${CCACHE})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# Every object may go into libcoda, whose header says what others see.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

add_library(coda_options INTERFACE)
target_include_directories(coda_options INTERFACE ${CMAKE_SOURCE_DIR})
# The baseline is x86-64-v3 (AVX2, FMA) rather than -march=native: a binary moves between machines and gives the same bits.
target_compile_options(coda_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow $<$<BOOL:${CODA_WERROR}>:-Werror>
                              -march=x86-64-v3 -ffp-contract=fast>)
# Warnings that concern the compiler, not the code: g++ 12 takes "x" + std::string for a copy onto itself (GCC bug
# 105651), and clang reports that it did not vectorise a loop.
target_compile_options(coda_options INTERFACE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict> $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-pass-failed>)
# The host side of CUDA sources. nvcc's front end adds parentheses that the source does not have.
target_compile_options(coda_options INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-parentheses
                               $<$<BOOL:${CODA_WERROR}>:-Xcompiler=-Werror -Werror=all-warnings>>)
if(CODA_SANITIZE)
    target_compile_options(coda_options INTERFACE
        $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer>)
    target_link_options(coda_options INTERFACE -fsanitize=address,undefined)
    # g++ 12 sees uninitialised reads in its own <regex> once the sanitizers have instrumented it.
    target_compile_options(coda_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endif()
if(CODA_TSAN)
    target_compile_options(coda_options INTERFACE
        $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread -fno-omit-frame-pointer>)
    target_link_options(coda_options INTERFACE -fsanitize=thread)
endif()
