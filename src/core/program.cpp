#include "src/core/program.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "src/core/errors.h"
#include "src/core/printable.h"
#include "src/core/standard_streams.h"

namespace coda {

std::string message_of(const std::exception& error) {
    if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
        return "out of memory: the system gives this program no more";
    return printable(error.what());
}

int run_program(const char* name, const std::function<int()>& body) {
    try {
        prepare_standard_streams();
        return body();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", name, message_of(error).c_str());
        return exit_code_of(error);
    }
}

void abandon_program(const std::string& message) {
    std::fprintf(stderr, "coda_train: %s\n", printable(message).c_str());
    std::fflush(nullptr);
    std::_Exit(kExitRuntime);
}

}  // namespace coda
