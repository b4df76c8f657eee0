#include "src/model/float8_state.h"

namespace coda {

namespace {

View scalar_of(const View& vector, std::int32_t index) { return part_of(vector, index, 1); }

}  // namespace

Float8State::Float8State(const PrecisionConfig& precision, const ParameterLayout& layout, const BlockBuffers& buffers)
    : layers_(layout.layers.size()) {
    if (!precision.has_fp8) return;
    const auto first = static_cast<std::size_t>(precision.bf16_first_layers);
    const std::size_t end = layout.layers.size() - static_cast<std::size_t>(precision.bf16_last_layers);
    for (std::size_t l = first; l < end; ++l) add_layer(l, layout.layers[l], buffers.of_layer(l));

    const auto vector = [&](const char* name, std::int64_t rows, std::size_t columns) {
        return buffers.persistent(name, MemorySegment::optimizer, buffers.precision().statistic, rows,
                                  static_cast<std::int64_t>(columns));
    };
    views_ = {.input_scale = vector("f8 scale of normalised inputs", 1, 1),
              .amax = vector("f8 amax", 1, tensors_.size()),
              .history = vector("f8 amax history", kScaleWindow, tensors_.size()),
              .scales = vector("f8 scales", 1, tensors_.size()),
              .products = vector("f8 factors of products", 1, pairs_.size())};
    for (std::size_t g = 0; g < gemms_.size(); ++g) complete(gemms_[g], static_cast<std::int32_t>(3 * g));
}

void Float8State::add_layer(std::size_t l, const Layer::Parameters& parameters, const BlockBuffers& buffers) {
    Float8Layer& layer = layers_[l];
    const auto add = [&](const GemmNames& names, const PackedTensor& matrix, bool normalised,
                         Float8Gemm Float8Layer::*gemm) {
        (layer.*gemm).rows =
            buffers.persistent(names.rows, MemorySegment::weights, DType::f8e4m3, matrix.rows, matrix.cols);
        (layer.*gemm).columns =
            buffers.persistent(names.columns, MemorySegment::weights, DType::f8e4m3, matrix.cols, matrix.rows);
        const auto tensor = [&](const char* role, DType format = DType::f8e4m3) {
            tensors_.push_back({static_cast<int>(l), text(names.gemm, ".", role), format});
            return static_cast<std::int32_t>(tensors_.size()) - 1;
        };
        const std::int32_t input = normalised ? kNormalised : tensor("input");
        const std::int32_t weight = tensor("weight"), gradient = tensor("output_gradient", names.gradient);
        std::optional<std::int32_t> output;
        if (names.keeps_output) output = tensor("output");
        pairs_.insert(pairs_.end(), {{input, weight}, {gradient, weight}, {gradient, input}});
        gemms_.push_back({l, gemm, names.step, matrix, input, weight, gradient, output});
    };
    add({"qkv", "qkv_f8", "qkv f8", "qkv f8 transposed", kQkvGradient}, parameters.attention.qkv, true,
        &Float8Layer::qkv);
    add({"attn_out", "attn_out_f8", "attn_out f8", "attn_out f8 transposed"}, parameters.attention.out, false,
        &Float8Layer::attn_out);
    add({"gate_up", "gate_up_f8", "gate_up f8", "gate_up f8 transposed", DType::f8e4m3, /*keeps_output=*/true},
        parameters.mlp.gate_up, true, &Float8Layer::gate_up);
    add({"down", "down_f8", "down f8", "down f8 transposed"}, parameters.mlp.down, false, &Float8Layer::down);
}

void Float8State::complete(const Gemm& made, std::int32_t product) {
    Float8Gemm& gemm = layers_[made.layer].*made.gemm;
    const auto tensor = [&](std::int32_t index) -> Float8Tensor {
        if (index == kNormalised) return {.scale = views_.input_scale, .amax = {}};
        return {.scale = scalar_of(views_.scales, index), .amax = scalar_of(views_.amax, index)};
    };
    gemm.input = tensor(made.input);
    gemm.weight = tensor(made.weight);
    gemm.output_gradient = tensor(made.output_gradient);
    if (made.output) gemm.output = tensor(*made.output);
    gemm.forward = scalar_of(views_.products, product);
    gemm.dgrad = scalar_of(views_.products, product + 1);
    gemm.wgrad = scalar_of(views_.products, product + 2);
}

void Float8State::build_renewal(StepList& step, const HostViews& host, const FlatSegments& segments) const {
    HostViews::Float8 views = views_;
    step.enter(Phase::update, -1);
    step("f8_scales", UpdateScales{.amax = write(views.amax),
                                   .history = write(views.history),
                                   .step = host.step,
                                   .skip = host.skip,
                                   .scales = write(views.scales),
                                   .products = write(views.products),
                                   .pairs = pairs_});
    FlatSegments updated = segments;  // as AdamW left them
    updated.master = host.master;
    updated.working = host.working;
    for (FlatSegments::Copy& copy : updated.copies) {
        copy.master.version = copy.gamma.version = host.master.version;
        if (!copy.kept) continue;
        step("kept_weights", RoundWeights{.master = copy.master, .gamma = copy.gamma, .working = write(copy.value)});
    }
    for (const Gemm& made : gemms_) {
        const Float8Gemm& gemm = layers_[made.layer].*made.gemm;
        step.enter(Phase::update, static_cast<int>(made.layer));
        Weight matrix = updated.matrix(made.matrix);
        matrix.make(step, "f8_weights");
        View rows = gemm.rows, columns = gemm.columns, amax = scalar_of(views.amax, made.weight);
        step(made.step, QuantiseF8{.x = matrix.value,
                                   .rstd = {},
                                   .scale = scalar_of(views.scales, made.weight),
                                   .rows = write(rows),
                                   .columns = write(columns),
                                   .amax = write(amax)});
    }
}

}  // namespace coda
