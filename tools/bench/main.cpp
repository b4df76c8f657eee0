// coda_bench: times the kernels and the whole training step on this GPU, compared with the libraries they compete with.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "src/core/errors.h"
#include "src/core/printable.h"
#include "src/core/standard_streams.h"
#include "tools/bench/commands.h"

int main(int argc, char** argv) {
    CLI::App app("Benchmarks of coda_train's kernels and of its whole step");
    app.require_subcommand(1);
    coda::bench::add_gemm(app);
    coda::bench::add_f8(app);
    coda::bench::add_attention(app);
    coda::bench::add_decode(app);
    coda::bench::add_pointwise(app);
    coda::bench::add_step(app);
    coda::bench::add_header(app);
    const auto fail = [](const char* what, int code) {
        std::fprintf(stderr, "coda_bench: %s\n", coda::printable(what).c_str());
        return code;
    };
    try {
        coda::prepare_standard_streams();
        try {
            app.parse(argc, argv);
        } catch (const CLI::ParseError& error) {  // --help is one
            if (app.exit(error) != 0) return coda::kExitUsage;
        }
        coda::close_standard_output();
        return coda::kExitDone;
    } catch (const coda::UsageError& error) {
        return fail(error.what(), coda::kExitUsage);
    } catch (const std::exception& error) {
        return fail(error.what(), coda::kExitRuntime);
    }
}
