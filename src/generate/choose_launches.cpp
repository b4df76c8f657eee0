#include "src/generate/choose_launches.h"

#include "src/core/errors.h"
#include "src/generate/pass_launches.h"

namespace coda {

std::unique_ptr<DecodeLaunches> choose_launches(Executor& executor, const Schedules& schedules,
                                                const std::function<void(Pass)>& run, const DecoderOptions& options,
                                                Console& console) {
    if (options.choice != DecoderChoice::passes) {
        DecodeLaunchesOffer offer = executor.offer_decode_launches(options.watchdog_seconds);
        if (offer.launches) return std::move(offer.launches);
        const bool asked = options.choice == DecoderChoice::fused;
        require(!asked || !offer.problem.empty(),
                "--decoder fused: the fused decode kernel runs on a Hopper GPU, and this is ", executor.device_name(),
                "; leave it out or take --decoder passes");
        require(!asked, "--decoder fused: ", offer.problem, "; leave it out or take --decoder passes");
        if (!offer.problem.empty()) {
            console.line("note: tokens are made operation by operation, not by the fused kernel: " + offer.problem);
        }
    }
    return std::make_unique<PassLaunches>(executor, schedules, run);
}

}  // namespace coda
