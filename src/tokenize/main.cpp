#include "src/core/errors.h"
#include "src/core/interrupt.h"
#include "src/core/program.h"
#include "src/core/standard_streams.h"
#include "src/tokenize/run.h"

int main(int argc, char** argv) {
    using namespace coda;
    return run_program("coda_tokenize", [&] {
        const TokenizeOptions options = parse_tokenize_options(argc, argv);
        if (options.print) {
            print(*options.print);
        } else {
            watch_interrupts();
            if (options.decode) {
                decode(options);
            } else {
                options.seq_len > 0 ? tokenize_conversations(options) : tokenize(options);
            }
        }
        close_standard_output();
        return kExitDone;
    });
}
