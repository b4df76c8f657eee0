#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/core/program.h"
#include "src/core/standard_streams.h"
#include "src/generate/program/generate.h"

int main(int argc, char** argv) {
    using namespace coda;
    return run_program("coda_generate", [&] {
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
    });
}
