// The functions of coda.h on a run in the caller's own loop.
#include <cstring>
#include <memory>
#include <optional>

#include "src/config/command_line.h"
#include "src/core/errors.h"
#include "src/core/program.h"
#include "src/core/standard_streams.h"
#include "src/engine/ranks.h"
#include "src/library/callback_team.h"
#include "src/library/coda.h"
#include "src/library/own_loop.h"

using namespace coda;

struct coda_run {
    std::optional<CallbackTeam> team;
    std::optional<OwnLoop> loop;
};

namespace {

std::string problem;  // of the call that failed last

/// The exit code of what `body` throws, whose text becomes the problem. Other ranks hear of an error that only this one
/// has.
template <class Body>
int guarded(coda_run& run, Body&& body) {
    try {
        body();
        return kExitDone;
    } catch (const std::exception& error) {
        if (run.team) run.team->leave(error);
        problem = message_of(error);
        return exit_code_of(error);
    }
}

View segment_named(const HostViews& host, const char* name) {
    const std::pair<const char*, View> known[] = {
        {"master", host.master}, {"gradient", host.gradient}, {"m", host.m}, {"v", host.v}, {"working", host.working}};
    for (const auto& [known_name, view] : known)
        if (std::strcmp(name, known_name) == 0) return view;
    throw UsageError(text("there is no segment ", name, "; there are master, gradient, m, v and working"));
}

std::int32_t number_of(DType dtype) {
    switch (dtype) {
        case DType::f64: return CODA_F64;
        case DType::f32: return CODA_F32;
        case DType::bf16: return CODA_BF16;
        default: throw Error(text("a segment of ", name_of(dtype)));
    }
}

coda_tensor described(const HfTensor& tensor) {
    const bool every_second = tensor.order == HfTensor::Order::even || tensor.order == HfTensor::Order::odd;
    return {.name = tensor.name.c_str(),
            .rows = tensor.is_matrix() ? tensor.rows : 1,
            .cols = tensor.is_matrix() ? tensor.cols : tensor.count(),
            .element = tensor.row_offset(0),
            .row_stride = (every_second ? 2 : 1) * tensor.cols,
            .head_dim = tensor.order == HfTensor::Order::rotary_half ? tensor.head_dim : 0,
            .matrix = tensor.is_matrix() ? 1 : 0};
}

std::span<const std::int32_t> ids(const std::int32_t* first, const Config& config, std::int64_t micro_batches) {
    const std::int64_t count = micro_batches * config.training.micro_batch_size * config.training.seq_len;
    return {first, static_cast<std::size_t>(count)};
}

}  // namespace

int coda_open(int argc, const char* const* argv, const coda_team* team, coda_run** run) {
    *run = nullptr;
    auto opened = std::make_unique<coda_run>();
    const int code = guarded(*opened, [&] {
        prepare_standard_streams();
        if (team != nullptr) opened->team.emplace(*team);
        Team* const ranks = opened->team ? &*opened->team : nullptr;
        CommandLine command;
        Ranks(ranks).together([&] { command = parse_command_line(argc, argv); });
        opened->loop.emplace(command, ranks);
    });
    if (code == kExitDone) *run = opened.release();
    return code;
}

void coda_close(coda_run* run) { delete run; }

int coda_shape_of(coda_run* run, coda_shape* shape) {
    return guarded(*run, [&] {
        const Config& config = run->loop->session().config();
        *shape = {.micro_batches = run->loop->micro_batches(),
                  .batch = config.training.micro_batch_size,
                  .seq_len = config.training.seq_len,
                  .vocab = config.model.vocab_size,
                  .step = run->loop->step(),
                  .where = run->loop->session().executor().asynchronous() ? CODA_GPU : CODA_HOST,
                  .tensors = static_cast<std::int32_t>(run->loop->session().layout().tensors.size())};
    });
}

int coda_segment_of(coda_run* run, const char* name, coda_segment* segment) {
    return guarded(*run, [&] {
        const View view = segment_named(run->loop->session().host(), name);
        require(run->loop->session().schedules().uses(view), "this run has no segment ", name,
                ": it keeps a copy of each matrix instead");
        *segment = {.base = run->loop->session().executor().memory().address(view),
                    .elements = view.count(),
                    .dtype = number_of(view.dtype)};
    });
}

int coda_tensor_of(coda_run* run, int32_t index, coda_tensor* tensor) {
    return guarded(*run, [&] {
        const std::vector<HfTensor>& tensors = run->loop->session().layout().tensors;
        if (index < 0 || static_cast<std::size_t>(index) >= tensors.size())
            throw UsageError(text("there is no tensor ", index, "; there are ", tensors.size()));
        *tensor = described(tensors[static_cast<std::size_t>(index)]);
    });
}

int coda_gradients(coda_run* run, const int32_t* tokens, const int32_t* targets) {
    return guarded(*run, [&] {
        const Config& config = run->loop->session().config();
        run->loop->gradients(ids(tokens, config, run->loop->micro_batches()),
                             ids(targets, config, run->loop->micro_batches()));
    });
}

int coda_update(coda_run* run, double learning_rate) {
    return guarded(*run, [&] { run->loop->update(learning_rate); });
}

int coda_publish(coda_run* run) { return coda_update(run, 0); }

int coda_result(coda_run* run, double* loss, double* norm) {
    return guarded(*run, [&] {
        const OwnLoop::Result result = run->loop->result();
        *loss = result.loss;
        *norm = result.norm;
    });
}

int coda_validate(coda_run* run, const int32_t* tokens, const int32_t* targets, double* loss) {
    return guarded(*run, [&] {
        const Config& config = run->loop->session().config();
        *loss = run->loop->validate(ids(tokens, config, 1), ids(targets, config, 1));
    });
}

const char* coda_problem(void) { return problem.c_str(); }
