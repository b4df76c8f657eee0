# Third-party packages: the system's if it has them, else by FetchContent.
include_guard()
include(FetchContent)

find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)

find_package(nlohmann_json 3.10 QUIET)
if(NOT nlohmann_json_FOUND)
    FetchContent_Declare(nlohmann_json
        GIT_REPOSITORY https://github.com/nlohmann/json.git GIT_TAG v3.11.3 GIT_SHALLOW ON SYSTEM)
    FetchContent_MakeAvailable(nlohmann_json)
endif()

find_package(CLI11 2.1 QUIET)
if(NOT CLI11_FOUND)
    set(CLI11_INSTALL OFF CACHE INTERNAL "")  # cmake --install is only for this project
    FetchContent_Declare(CLI11
        GIT_REPOSITORY https://github.com/CLIUtils/CLI11.git GIT_TAG v2.4.2 GIT_SHALLOW ON SYSTEM)
    FetchContent_MakeAvailable(CLI11)
endif()

# Catch2 v2 (Debian 12) has one header and a main to compile; v3 is a library. tests/catch.h hides the difference.
find_package(Catch2 QUIET)
if(NOT Catch2_FOUND)
    FetchContent_Declare(Catch2
        GIT_REPOSITORY https://github.com/catchorg/Catch2.git GIT_TAG v3.5.4 GIT_SHALLOW ON SYSTEM)
    FetchContent_MakeAvailable(Catch2)
    list(APPEND CMAKE_MODULE_PATH ${catch2_SOURCE_DIR}/extras)
    set(Catch2_VERSION 3.5.4)
endif()
