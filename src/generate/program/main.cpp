#include <cstdio>
#include <exception>

#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/core/printable.h"
#include "src/core/standard_streams.h"
#include "src/generate/program/generate.h"

int main(int argc, char** argv) {
    using namespace coda;
    const auto fail = [](const char* what, int code) {
        std::fprintf(stderr, "coda_generate: %s\n", printable(what).c_str());
        return code;
    };
    try {
        prepare_standard_streams();
        const GenerateOptions options = parse_generate_options(argc, argv);
        int code = kExitDone;
        if (options.print) {
            print(*options.print);
        } else {
            watch_interrupts();
            code = generate(options);
        }
        close_standard_output();
        return code;
    } catch (const UsageError& error) {
        return fail(error.what(), kExitUsage);
    } catch (const NonFiniteError& error) {
        return fail(error.what(), kExitNonFinite);
    } catch (const std::exception& error) {
        return fail(error.what(), kExitRuntime);
    }
}
