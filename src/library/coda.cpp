#include "src/library/coda.h"

#include <cstdio>

#include "src/config/command_line.h"
#include "src/core/build_id.h"
#include "src/core/errors.h"
#include "src/core/program.h"
#include "src/engine/ranks.h"
#include "src/library/callback_team.h"
#include "src/train/program/run.h"

namespace {

using namespace coda;

int run_rank(int argc, const char* const* argv, CallbackTeam& team) {
    try {
        CommandLine command;
        Ranks(&team).together([&] { command = parse_command_line(argc, argv); });
        return run(command, &team);
    } catch (const std::exception& error) {
        team.leave(error);
        if (dynamic_cast<const AgreedError*>(&error) == nullptr || team.rank() == 0) throw;
        return exit_code_of(error);  // the first rank says it
    }
}

}  // namespace

int coda_main(int argc, const char* const* argv, const coda_team* team) {
    const std::string name = team && team->rank > 0 ? text("coda_train, rank ", team->rank) : "coda_train";
    const int code = run_program(name.c_str(), [&] {
        if (!team) return run(parse_command_line(argc, argv), nullptr);
        CallbackTeam ranks(*team);
        return run_rank(argc, argv, ranks);
    });
    std::fflush(stdout);  // the caller may end the process without it
    return code;
}

int32_t coda_abi(void) { return CODA_ABI; }

const char* coda_build(void) {
    static const std::string build = build_id();
    return build.c_str();
}
