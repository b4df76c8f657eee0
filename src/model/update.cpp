#include "src/model/update.h"

#include "src/model/square_sums.h"

namespace coda {

namespace {

class Update {
  public:
    Update(const ParameterLayout& layout, const ScheduleOptions& options, HostViews& host, const Weights& weights,
           Exchanges& exchanges, StepList& step)
        : layout_(layout),
          options_(options),
          host_(host),
          weights_(weights),
          exchanges_(exchanges),
          division_(exchanges.division()),
          step_(step) {}

    std::vector<Exchanges::UnderWay> issue() {
        const View squares = division_.divides() ? squares_of_parts() : squares_of_all();
        step_("grad_norm", GradNorm{.sums = squares,
                                    .loss = host_.loss,
                                    .drop_above = host_.drop_above,
                                    .norm = write(host_.norm),
                                    .clip = write(host_.clip),
                                    .skip = write(host_.skip),
                                    .max_norm = options_.max_grad_norm});
        for (View* view : {&host_.master, &host_.norms, &host_.m, &host_.v, &host_.working, &host_.embedding})
            write(*view);
        return update_all();
    }

  private:
    View squares_of_all() {
        View squares =
            exchanges_.buffers().activation("sums of squares", DType::f64, 1, SumSquares::sums_of(layout_.count));
        step_("sum_squares", SumSquares{.grad = host_.gradient, .sums = write(squares)});
        return squares;
    }

    /// The last micro-batch has left the sums of the rank's parts. This also sums the shared gradients and the loss
    /// over all ranks.
    View squares_of_parts() {
        std::vector<Exchanges::UnderWay> shared;
        for (const ElementRange& range : division_.shared())
            shared.push_back(exchanges_.gather(step_, "shared_gradients", gradient(range)));
        const Exchanges::UnderWay loss = exchanges_.gather(step_, "loss", host_.loss);

        const SquareSums sums(division_);
        View squares = host_.squares;
        const Exchanges::UnderWay gathered =
            exchanges_.gather_in_place(step_, "squares", part_of(squares, 0, sums.of_ranks()));

        // What other ranks' sums have after the exchange, shared ones have at once.
        write(squares);
        for (std::size_t i = 0; i < shared.size(); ++i) {
            View grad = gradient(division_.shared()[i]);
            exchanges_.reduce(step_, shared[i], ReduceParts::How::sum, grad);
            step_("sum_squares", SumSquares{.grad = grad, .sums = sums.of_shared(squares, i)});
        }
        exchanges_.reduce(step_, loss, ReduceParts::How::sum, host_.loss);
        exchanges_.finish(step_, gathered);
        return squares;
    }

    View gradient(const ElementRange& range) const { return part_of(host_.gradient, range.first, range.count); }

    /// The weights of norms come first: matrices that follow a norm have them in their working copy. Returns what other
    /// ranks send.
    std::vector<Exchanges::UnderWay> update_all() {
        const std::vector<ElementRange>& shared = division_.shared();
        // The working copy of parts gets another value when the other ranks' parts arrive.
        const std::uint32_t arrived = host_.working.version + (division_.divides() ? 1 : 0);
        const std::uint32_t summed = division_.divides() ? 1 : 0;  // what is shared, by this list
        update("adamw_norms", shared.back(), summed, arrived, 0);
        for (std::size_t i = 0; i + 1 < shared.size(); ++i)
            update("adamw", shared[i], summed, arrived, options_.optimizer.weight_decay);
        std::vector<Exchanges::UnderWay> sent;
        for (const Bucket& bucket : division_.buckets()) {
            update("adamw", bucket.part_of(division_.rank()), 0, host_.working.version,
                   options_.optimizer.weight_decay);
            const ElementRange whole{bucket.first, bucket.part * division_.ranks()};
            const auto send = [&](const View& segment) {
                sent.push_back(
                    exchanges_.gather_in_place(step_, "weights", part_of(segment, whole.first, whole.count)));
            };
            send(host_.working);
            if (has_embedding(whole)) send(flat_embedding());
        }
        host_.working.version = arrived;
        return sent;
    }

    void update(const char* name, const ElementRange& range, std::uint32_t gradient_version, std::uint32_t copy_version,
                double weight_decay) {
        const bool matrices = range.first < layout_.matrix_count;
        const auto own = [&](const View& segment) {
            return part_of(segment, division_.place_of(range.first, range.count), range.count);
        };
        const auto copy = [&](View segment) {
            segment.version = copy_version;
            return part_of(segment, range.first, range.count);
        };
        View grad = gradient(range);
        grad.version = gradient_version;
        step_(name, AdamW{.grad = grad,
                          .master = own(host_.master),
                          .m = own(host_.m),
                          .v = own(host_.v),
                          .working = weights_.own_copies() ? View{} : copy(host_.working),
                          .norms = matrices ? host_.norms : View{},
                          .lr = host_.lr,
                          .correction1 = host_.correction1,
                          .correction2 = host_.correction2,
                          .clip = host_.clip,
                          .step = host_.step,
                          .skip = host_.skip,
                          .first = range.first,
                          .first_norm = layout_.matrix_count,
                          .folds = matrices ? layout_.folds : std::vector<NormFold>(),
                          .beta1 = options_.optimizer.beta1,
                          .beta2 = options_.optimizer.beta2,
                          .eps = options_.optimizer.eps,
                          .weight_decay = weight_decay,
                          .seed = options_.seed});
        if (has_embedding(range)) {
            step_("embedding_copy",
                  RoundWeights{.master = own(host_.master), .gamma = {}, .working = copy(flat_embedding())});
        }
    }

    /// Whether elements from `range.first` on are of the embedding, and tokens are looked up in a copy of it.
    bool has_embedding(const ElementRange& range) const {
        return division_.divides() && layout_.tied() && range.first < layout_.embedding_table().count();
    }
    /// The copy as a part of a flat segment: the embedding is the first matrix.
    View flat_embedding() const {
        View flat = host_.embedding;
        flat.cols = flat.ld = flat.count();
        flat.rows = 1;
        return flat;
    }

    const ParameterLayout& layout_;
    const ScheduleOptions& options_;
    HostViews& host_;
    const Weights& weights_;
    Exchanges& exchanges_;
    const Division& division_;
    StepList& step_;
};

}  // namespace

std::vector<Exchanges::UnderWay> build_update(const ParameterLayout& layout, const ScheduleOptions& options,
                                              HostViews host, const Weights& weights, Exchanges& exchanges,
                                              StepList& step) {
    step.enter(Phase::update, -1);
    std::vector<Exchanges::UnderWay> sent = Update(layout, options, host, weights, exchanges, step).issue();
    if (weights.f8()) build_renewal(host, weights, exchanges, step);
    weights.derive(step, host.segments());
    return sent;
}

void build_renewal(const HostViews& host, const Weights& weights, Exchanges& exchanges, StepList& step) {
    step.enter(Phase::update, -1);
    View amax = weights.views().amax;
    if (exchanges.division().divides())
        exchanges.reduce(step, exchanges.gather(step, "f8_amax", amax), ReduceParts::How::largest, amax);
    weights.renew(step, host.segments(), host.step, host.skip, amax);
}

}  // namespace coda
