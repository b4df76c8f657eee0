#include "src/config/command_line.h"
#include "src/core/program.h"
#include "src/core/standard_streams.h"
#include "src/train/program/run.h"

int main(int argc, char** argv) {
    using namespace coda;
    return run_program("coda_train", [&] {
        const CommandLine command = parse_command_line(argc, argv);
        const int code = run(command, nullptr);
        // A run survives without its console, since its log has what matters.
        if (!command.runs()) close_standard_output();
        return code;
    });
}
