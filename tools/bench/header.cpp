// coda_bench header: what records say about their run, for scripts that measure without coda_bench.
#include <cstdio>

#include "tools/bench/commands.h"
#include "tools/bench/result_header.h"

namespace coda::bench {

void add_header(CLI::App& app) {
    app.add_subcommand("header", "Print what records say about their run: commit, GPU, driver, clocks")->callback([] {
        std::puts(result_header(current_clocks()).dump(1).c_str());
    });
}

}  // namespace coda::bench
