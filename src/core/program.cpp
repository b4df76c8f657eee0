#include "src/core/program.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "src/core/errors.h"
#include "src/core/printable.h"
#include "src/core/standard_streams.h"

namespace coda {

int run_program(const char* name, const std::function<int()>& body) {
    const auto fail = [name](const char* what, int code) {
        std::fprintf(stderr, "%s: %s\n", name, printable(what).c_str());
        return code;
    };
    try {
        prepare_standard_streams();
        return body();
    } catch (const std::bad_alloc&) {
        return fail("out of memory: the system gives this program no more", kExitRuntime);
    } catch (const std::exception& error) {
        return fail(error.what(), exit_code_of(error));
    }
}

void abandon_program(const std::string& message) {
    std::fprintf(stderr, "coda_train: %s\n", printable(message).c_str());
    std::fflush(nullptr);
    std::_Exit(kExitRuntime);
}

}  // namespace coda
