// coda_bench: times the kernels and the whole training step on this GPU, beside the libraries they compete with.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "src/core/errors.h"
#include "tools/bench/commands.h"

int main(int argc, char** argv) {
    CLI::App app("Benchmarks of coda_train's kernels and of its whole step");
    app.require_subcommand(1);
    coda::bench::add_gemm(app);
    coda::bench::add_attention(app);
    coda::bench::add_pointwise(app);
    coda::bench::add_step(app);
    coda::bench::add_header(app);
    try {
        app.parse(argc, argv);
        return coda::kExitDone;
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? coda::kExitDone : coda::kExitUsage;
    } catch (const coda::UsageError& error) {
        std::fprintf(stderr, "coda_bench: %s\n", error.what());
        return coda::kExitUsage;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "coda_bench: %s\n", error.what());
        return coda::kExitRuntime;
    }
}
