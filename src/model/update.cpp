#include "src/model/update.h"

namespace coda {

void build_update(const ParameterLayout& layout, const ScheduleOptions& options, HostViews host, const Weights& weights,
                  View squares, StepList& step) {
    const std::int64_t matrices = layout.matrix_count, norms = layout.count - matrices;
    step.enter(Phase::update, -1);
    step("sum_squares", SumSquares{.grad = host.gradient, .sums = write(squares)});
    step("grad_norm", GradNorm{.sums = squares,
                               .loss = host.loss,
                               .drop_above = host.drop_above,
                               .norm = write(host.norm),
                               .clip = write(host.clip),
                               .skip = write(host.skip),
                               .max_norm = options.max_grad_norm});
    for (View* view : {&host.master, &host.m, &host.v, &host.working}) write(*view);
    const auto update = [&](const char* name, std::int64_t first, std::int64_t count, double weight_decay) {
        const auto part = [&](const View& segment) { return part_of(segment, first, count); };
        step(name, AdamW{.grad = part(host.gradient),
                         .master = part(host.master),
                         .m = part(host.m),
                         .v = part(host.v),
                         .working = weights.own_copies() ? View{} : part(host.working),
                         .norms = first < matrices ? part_of(host.master, matrices, norms) : View{},
                         .lr = host.lr,
                         .correction1 = host.correction1,
                         .correction2 = host.correction2,
                         .clip = host.clip,
                         .step = host.step,
                         .skip = host.skip,
                         .first = first,
                         .first_norm = matrices,
                         .folds = first < matrices ? layout.folds : std::vector<NormFold>(),
                         .beta1 = options.optimizer.beta1,
                         .beta2 = options.optimizer.beta2,
                         .eps = options.optimizer.eps,
                         .weight_decay = weight_decay,
                         .seed = options.seed});
    };
    update("adamw_norms", matrices, norms, 0);
    update("adamw", 0, matrices, options.optimizer.weight_decay);
    if (weights.f8()) weights.renew(step, host.segments(), host.step, host.skip);
}

}  // namespace coda
