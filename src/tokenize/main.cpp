#include <cstdio>
#include <exception>

#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/core/printable.h"
#include "src/core/standard_streams.h"
#include "src/tokenize/run.h"

int main(int argc, char** argv) {
    using namespace coda;
    const auto fail = [](const char* what, int code) {
        std::fprintf(stderr, "coda_tokenize: %s\n", printable(what).c_str());
        return code;
    };
    try {
        prepare_standard_streams();
        const TokenizeOptions options = parse_tokenize_options(argc, argv);
        if (options.print) {
            print(*options.print);
        } else {
            watch_interrupts();
            options.decode ? decode(options) : tokenize(options);
        }
        close_standard_output();
        return kExitDone;
    } catch (const InterruptedError& error) {
        return fail(error.what(), kExitInterrupted);
    } catch (const UsageError& error) {
        return fail(error.what(), kExitUsage);
    } catch (const std::exception& error) {
        return fail(error.what(), kExitRuntime);
    }
}
