#include "src/model/tensors/weights.h"

#include <algorithm>
#include <optional>

#include "kernels/math/int4.h"

namespace coda {

namespace {

View scalar_of(const View& vector, std::int32_t index) { return part_of(vector, index, 1); }

BlockBuffers buffers_of(const WeightMatrix& matrix, const BlockBuffers& buffers) {
    return matrix.layer < 0 ? buffers : buffers.of_layer(static_cast<std::size_t>(matrix.layer));
}

}  // namespace

Weights::Weights(std::span<const WeightMatrix> matrices, const Segments& segments, const WeightForms& forms,
                 const BlockBuffers& buffers)
    : own_copies_(forms.own_copies), read_(segments) {
    if (forms.own_norms)
        read_.norms = norms_ =
            buffers.persistent("norm weights", MemorySegment::weights, segments.norms.dtype, 1, segments.norms.cols);
    for (const WeightMatrix& matrix : matrices) {
        Projection& projection = projections_.emplace_back();
        projection.name_ = matrix.name;
        projection.layer_ = matrix.layer;
        projection.value_ = Segments::part(segments.working, matrix.place);
        projection.gradient_ = Segments::part(segments.gradient, matrix.place);
        if (matrix.has_bias) {
            projection.bias_ = read_.norm(matrix.bias);
            projection.bias_gradient_ = Segments::part(segments.gradient, matrix.bias);
        }
        const BlockBuffers to = buffers_of(matrix, buffers);
        const std::int64_t outputs = matrix.place.rows;
        if ((matrix.centred && matrix.has_bias) || (matrix.norm && matrix.norm->bias))
            projection.added_ = to.persistent(text(matrix.name, " added"), MemorySegment::weights,
                                              to.precision().statistic, 1, outputs);
        if (matrix.centred)
            projection.centred_ = to.persistent(text(matrix.name, " centred weights"), MemorySegment::weights,
                                                to.precision().storage, outputs, matrix.place.cols);
        if (!matrix.norm) continue;
        if (matrix.norm->bias) {
            projection.beta_ = read_.norm(*matrix.norm->bias);
            projection.beta_gradient_ = Segments::part(segments.gradient, *matrix.norm->bias);
            projection.dz_sum_ = to.gradient(text(matrix.name, " dz sum"), outputs);
        }
        projection.gamma_ = read_.norm(matrix.norm->weight);
        projection.gamma_gradient_ = Segments::part(segments.gradient, matrix.norm->weight);
    }
    if (forms.f8) add_codes(matrices, forms.f8, buffers);
    if (!forms.int4.empty()) add_units(matrices, forms.int4, buffers);
    if (forms.own_copies) add_copies(matrices, segments, buffers);
}

void Weights::add_copies(std::span<const WeightMatrix> matrices, const Segments& segments,
                         const BlockBuffers& buffers) {
    for (std::size_t i = 0; i < matrices.size(); ++i) {
        const WeightMatrix& matrix = matrices[i];
        Projection& projection = projections_[i];
        const BlockBuffers to = buffers_of(matrix, buffers);
        const std::string name = text(matrix.name, " working weights");
        projection.master_ = Segments::part(segments.master, matrix.place);
        projection.kept_ = !projection.f8() && !projection.units_;
        projection.value_ = projection.kept_ ? to.persistent(name, MemorySegment::weights, to.precision().storage,
                                                             matrix.place.rows, matrix.place.cols)
                                             : to.activation(name, matrix.place.rows, matrix.place.cols);
    }
}

void Weights::add_units(std::span<const WeightMatrix> matrices, const std::vector<std::size_t>& int4,
                        const BlockBuffers& buffers) {
    for (const std::size_t i : int4) {
        const WeightMatrix& matrix = matrices[i];
        projections_[i].units_ =
            buffers_of(matrix, buffers)
                .persistent(text(matrix.name, " int4"), MemorySegment::weights, DType::i32,
                            matrix.place.rows / kInt4Rows, matrix.place.cols / kInt4Group * kInt4UnitWords);
    }
}

const Projection* Weights::projection_of(const View& w) const {
    const auto reads = [&](const View& view) { return view && view.buffer == w.buffer && view.offset == w.offset; };
    const auto found = std::find_if(projections_.begin(), projections_.end(), [&](const Projection& each) {
        return reads(each.value_) || reads(each.centred_) || reads(each.codes_.rows) || reads(each.codes_.columns);
    });
    return found == projections_.end() ? nullptr : &*found;
}

Scale Weights::scale_of(std::int32_t tensor) const {
    if (tensor == kNormalised) return {.scale = views_.input_scale, .amax = {}};
    return {.scale = scalar_of(views_.scales, tensor),
            .amax = scalar_of(views_.amax, tensor),
            .format = tensors_[static_cast<std::size_t>(tensor)].format};
}

void Weights::add_codes(std::span<const WeightMatrix> matrices, const F8Layers& f8, const BlockBuffers& buffers) {
    struct Numbers {  // of tensors_
        std::size_t matrix;
        std::int32_t input, weight, output_gradient;
        std::optional<std::int32_t> output;
    };
    std::vector<Numbers> numbers;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
        const WeightMatrix& matrix = matrices[i];
        if (!f8.has(matrix.layer)) continue;
        const auto codes = [&](const char* suffix, std::int64_t rows, std::int64_t cols) {
            return buffers_of(matrix, buffers)
                .persistent(text(matrix.name, suffix), MemorySegment::weights, DType::f8e4m3, rows, cols);
        };
        projections_[i].codes_.rows = codes(" f8", matrix.place.rows, matrix.place.cols);
        projections_[i].codes_.columns = codes(" f8 transposed", matrix.place.cols, matrix.place.rows);
        const auto tensor = [&](const char* role, DType format = DType::f8e4m3) {
            tensors_.push_back({matrix.layer, text(matrix.name, ".", role), format});
            return static_cast<std::int32_t>(tensors_.size()) - 1;
        };
        const std::int32_t input = matrix.norm ? kNormalised : tensor("input");
        const std::int32_t weight = tensor("weight"), gradient = tensor("output_gradient", matrix.gradient);
        std::optional<std::int32_t> output;
        if (matrix.rounds_output) output = tensor("output");
        pairs_.insert(pairs_.end(), {{input, weight}, {gradient, weight}, {gradient, input}});
        numbers.push_back({i, input, weight, gradient, output});
    }
    const auto vector = [&](const char* name, std::int64_t rows, std::size_t columns) {
        return buffers.persistent(name, MemorySegment::optimizer, buffers.precision().statistic, rows,
                                  static_cast<std::int64_t>(columns));
    };
    views_ = {.input_scale = vector("f8 scale of normalised inputs", 1, 1),
              .amax = vector("f8 amax", 1, tensors_.size()),
              .history = vector("f8 amax history", kScaleWindow, tensors_.size()),
              .scales = vector("f8 scales", 1, tensors_.size()),
              .products = vector("f8 factors of products", 1, pairs_.size())};
    for (std::size_t n = 0; n < numbers.size(); ++n) {
        const Numbers& of = numbers[n];
        Projection& projection = projections_[of.matrix];
        const auto first = static_cast<std::int32_t>(3 * n);
        projection.input_ = scale_of(of.input);
        projection.output_gradient_ = scale_of(of.output_gradient);
        if (of.output) projection.output_ = scale_of(*of.output);
        projection.codes_.weight = scale_of(of.weight);
        projection.codes_.undo_forward = scalar_of(views_.products, first);
        projection.codes_.undo_dgrad = scalar_of(views_.products, first + 1);
        projection.codes_.undo_wgrad = scalar_of(views_.products, first + 2);
    }
}

void Weights::derive(StepList& step, const Segments& segments) const {
    for (Projection each : projections_) {
        if (!each.derives()) continue;
        each.value_.version = segments.working.version;
        for (View* vector : {&each.gamma_, &each.beta_, &each.bias_}) vector->version = segments.norms.version;
        step.enter(Phase::update, each.layer_);
        each.derive(step);
    }
}

void Weights::renew(StepList& step, const Segments& updated, const View& number, const View& skip,
                    const View& amax) const {
    ScaleViews views = views_;
    views.amax = amax;
    step.enter(Phase::update, -1);
    step("f8_scales", UpdateScales{.amax = write(views.amax),
                                   .history = write(views.history),
                                   .step = number,
                                   .skip = skip,
                                   .scales = write(views.scales),
                                   .products = write(views.products),
                                   .pairs = pairs_});
    std::vector<Projection> projections = projections_;
    for (Projection& each : projections) {
        if (!own_copies_) each.value_.version = updated.working.version;
        each.master_.version = updated.master.version;
        each.gamma_.version = updated.norms.version;
        if (own_copies_ && each.kept_) each.make_value(step, "kept_weights");
    }
    for (Projection& each : projections) {
        if (!each.f8()) continue;
        step.enter(Phase::update, each.layer_);
        if (!each.kept_) each.make_value(step, "f8_weights");
        Projection::Codes& codes = each.codes_;
        codes.weight.scale.version = views.scales.version;
        codes.weight.amax.version = views.amax.version;
        const Rounded written{.scale = codes.weight.scale,
                              .rows = write(codes.rows),
                              .columns = write(codes.columns),
                              .amax = write(codes.weight.amax)};
        step(each.named("_f8"), QuantiseF8{.x = each.value_, .rstd = {}, .codes = written});
    }
}

}  // namespace coda
