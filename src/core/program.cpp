#include "src/core/program.h"

#include <cstdio>
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
    } catch (const UsageError& error) {
        return fail(error.what(), kExitUsage);
    } catch (const NonFiniteError& error) {
        return fail(error.what(), kExitNonFinite);
    } catch (const InterruptedError& error) {
        return fail(error.what(), kExitInterrupted);
    } catch (const std::bad_alloc&) {
        return fail("out of memory: the system gives this program no more", kExitRuntime);
    } catch (const std::exception& error) {
        return fail(error.what(), kExitRuntime);
    }
}

}  // namespace coda
