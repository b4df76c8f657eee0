#include "src/generate/make_decoder.h"

#include "src/generate/choose_launches.h"

namespace coda {

namespace {

constexpr std::int64_t kMostSlots = 8;

/// The checks of a configuration for a device look at one sequence of the whole context: the longest prefill.
Config of_prefill(Config config, const GenerationShape& shape) {
    config.training.seq_len = shape.context;
    config.training.micro_batch_size = 1;
    config.training.lm_head_chunks = 1;
    config.data.document_mask = false;
    return config;
}

/// A base, so that it is there before the decoder.
struct OwnSession {
    Session session;

    OwnSession(const Config& config, const GenerationShape& shape, Console& console)
        : session(config, passes_of(Mode::generate), false, console, shape) {}
};

class SessionDecoder : private OwnSession, public SlotDecoder {
  public:
    SessionDecoder(const Config& config, const GenerationShape& shape, const WeightsSource& weights,
                   const DecoderOptions& options, Console& console)
        : OwnSession(config, shape, console),
          SlotDecoder(session.executor(), session.schedules(), run(),
                      choose_launches(session.executor(), session.schedules(), run(), options, console)) {
        weights.load(session);
    }

  private:
    std::function<void(Pass)> run() {
        return [this](Pass pass) { session.run(pass); };
    }
};

}  // namespace

std::unique_ptr<SlotDecoder> make_decoder(const Config& config, const GenerationShape& shape,
                                          const WeightsSource& weights, const DecoderOptions& options,
                                          Console& console) {
    require(shape.slots >= 1 && shape.slots <= kMostSlots, "generation of ", shape.slots,
            " sequences side by side: it takes 1 to ", kMostSlots);
    return std::make_unique<SessionDecoder>(of_prefill(config, shape), shape, weights, options, console);
}

}  // namespace coda
