#include "src/generate/make_decoder.h"

#include "src/generate/choose_launches.h"

namespace coda {

namespace {

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

class SessionDecoder : private OwnSession, public BatchDecoder {
  public:
    SessionDecoder(const Config& config, const GenerationShape& shape, const WeightsSource& weights,
                   const DecoderOptions& options, Console& console)
        : OwnSession(config, shape, console),
          BatchDecoder(session.executor(), session.schedules(), run(),
                       choose_launches(session.executor(), session.schedules(), run(), options, console)) {
        weights.load(session);
    }

  private:
    std::function<void(Pass)> run() {
        return [this](Pass pass) { session.run(pass); };
    }
};

}  // namespace

std::unique_ptr<BatchDecoder> make_decoder(const Config& config, const GenerationShape& shape,
                                           const WeightsSource& weights, const DecoderOptions& options,
                                           Console& console) {
    require(shape.batch >= 1 && shape.batch <= kMostSequences, "generation of ", shape.batch,
            " sequences side by side: it takes 1 to ", kMostSequences);
    GenerationShape kept = shape;
    if (options.lookup) {
        require(shape.batch <= kMostLookupSequences, "generation of ", shape.batch,
                " sequences with guesses: it takes 1 to ", kMostLookupSequences);
        kept.rows_each = kLookupRows / shape.batch;
    }
    kept.int4 = weights.int4_matrices(parameter_layout(config.model));
    return std::make_unique<SessionDecoder>(of_prefill(config, shape), kept, weights, options, console);
}

}  // namespace coda
