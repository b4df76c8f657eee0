#include "src/model/update.h"

namespace coda {

void build_update(const ParameterLayout& layout, const ScheduleOptions& options, HostViews host, const Weights& weights,
                  StepList& step) {
    step.enter(Phase::update, -1);
    step("grad_norm", GradNorm{.grad = host.gradient,
                               .loss = host.loss,
                               .drop_above = host.drop_above,
                               .norm = write(host.norm),
                               .clip = write(host.clip),
                               .skip = write(host.skip),
                               .scratch = {},
                               .max_norm = options.max_grad_norm});
    step("adamw", AdamW{.grad = host.gradient,
                        .master = write(host.master),
                        .m = write(host.m),
                        .v = write(host.v),
                        .working = weights.own_copies() ? View{} : write(host.working),
                        .lr = host.lr,
                        .correction1 = host.correction1,
                        .correction2 = host.correction2,
                        .clip = host.clip,
                        .step = host.step,
                        .skip = host.skip,
                        .decayed = layout.matrix_count,
                        .folds = layout.folds,
                        .beta1 = options.optimizer.beta1,
                        .beta2 = options.optimizer.beta2,
                        .eps = options.optimizer.eps,
                        .weight_decay = options.optimizer.weight_decay,
                        .seed = options.seed});
    if (weights.f8()) weights.renew(step, host.segments(), host.step, host.skip);
}

}  // namespace coda
