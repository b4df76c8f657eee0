// coda_bench header: what result files begin with, for scripts that write some of their own.
#include <cstdio>

#include "tools/bench/commands.h"
#include "tools/bench/result_header.h"

namespace coda::bench {

void add_header(CLI::App& app) {
    app.add_subcommand("header", "Print the header of result files: commit, hash of the sources, GPU, driver, clocks")
        ->callback([] { std::puts(result_header(current_clocks()).dump(1).c_str()); });
}

}  // namespace coda::bench
