#include "src/quantize/quantized_weights.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/math/int4.h"
#include "src/io/int4_matrix.h"
#include "src/quantize/gptq.h"
#include "src/quantize/inverse_factor.h"

namespace coda {

namespace {

constexpr std::int64_t kMostValues = std::int64_t{1} << 24;  // of the rows that are rounded at a time

template <class T>
std::span<T> row_of(std::span<T> all, std::int64_t row, std::int64_t columns) {
    return all.subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns));
}

}  // namespace

QuantizedWeights::QuantizedWeights(const ParameterLayout& layout, const MasterWeights& source, InputProducts* products,
                                   const std::function<void(const std::string&)>& said)
    : layout_(layout), source_(source), codes_(layout.tensors.size()) {
    const auto layers = static_cast<std::int64_t>(layout.layers.size());
    for (std::size_t i = 0; i < layout.matrices.size(); ++i) {
        const WeightMatrix& matrix = layout.matrices[i];
        if (matrix.layer < 0) continue;
        if (divides_into_groups(matrix.place.cols)) {
            std::vector<float> factor;
            if (products != nullptr) {
                factor = inverse_factor(products->of(i), matrix.place.cols);
                products->release(i);
            }
            for (const std::size_t tensor : tensors_of(layout, matrix.place))
                if (!source.is_int4(tensor)) quantize(tensor, factor);
        }
        const bool last = i + 1 == layout.matrices.size() || layout.matrices[i + 1].layer != matrix.layer;
        if (last) said(text("layer ", matrix.layer + 1, " of ", layers, " is rounded"));
    }
}

void QuantizedWeights::quantize(std::size_t tensor, std::span<const float> factor) {
    const std::int64_t rows = layout_.tensors[tensor].rows, cols = layout_.tensors[tensor].cols;
    const std::int64_t words = cols / kInt4PerWord, groups = cols / kInt4Group;
    Codes& codes = codes_[tensor];
    codes.words.resize(static_cast<std::size_t>(rows * words));
    codes.scales.resize(static_cast<std::size_t>(rows * groups));
    const std::int64_t most = std::max(kMostValues / cols, std::int64_t{1});
    std::vector<float> values;
    for (std::int64_t first = 0; first < rows; first += most) {
        const std::int64_t count = std::min(most, rows - first);
        values.resize(static_cast<std::size_t>(count * cols));
        for (std::int64_t row = 0; row < count; ++row)
            source_.read_row(tensor, first + row, row_of(std::span(values), row, cols));
        const auto part = [&](auto all, std::int64_t columns) {
            return all.subspan(static_cast<std::size_t>(first * columns), static_cast<std::size_t>(count * columns));
        };
        const std::span<std::uint32_t> to = part(std::span(codes.words), words);
        const std::span<Bf16> scales = part(std::span(codes.scales), groups);
        if (!factor.empty()) {
            gptq_rows(values, cols, factor, to, scales);
            continue;
        }
#pragma omp parallel for
        for (std::int64_t row = 0; row < count; ++row)
            quantize_row(row_of(std::span<const float>(values), row, cols), row_of(to, row, words),
                         row_of(scales, row, groups));
    }
}

void QuantizedWeights::unpack(std::size_t tensor, std::int64_t row, std::int64_t column, std::span<float> out) const {
    const std::int64_t cols = layout_.tensors[tensor].cols;
    unpack_int4(row_of(std::span<const std::uint32_t>(codes_[tensor].words), row, cols / kInt4PerWord),
                row_of(std::span<const Bf16>(codes_[tensor].scales), row, cols / kInt4Group), column, out);
}

void QuantizedWeights::read(std::int64_t first, std::span<float> out) const {
    source_.read(first, out);
    for_each_row_part(layout_, first, static_cast<std::int64_t>(out.size()),
                      [&](std::size_t tensor, std::int64_t row, const RowPart& part) {
                          if (rounded(tensor)) unpack(tensor, row, part.column, part.of(out));
                      });
}

void QuantizedWeights::read_row(std::size_t tensor, std::int64_t row, std::span<float> out) const {
    if (!rounded(tensor)) return source_.read_row(tensor, row, out);
    unpack(tensor, row, 0, out);
}

void QuantizedWeights::read_int4_row(std::size_t tensor, std::int64_t row, std::span<std::uint32_t> words,
                                     std::span<Bf16> scales) const {
    if (!rounded(tensor)) return source_.read_int4_row(tensor, row, words, scales);
    const std::int64_t cols = layout_.tensors[tensor].cols;
    const auto from = row_of(std::span<const std::uint32_t>(codes_[tensor].words), row, cols / kInt4PerWord);
    const auto of = row_of(std::span<const Bf16>(codes_[tensor].scales), row, cols / kInt4Group);
    std::copy(from.begin(), from.end(), words.begin());
    std::copy(of.begin(), of.end(), scales.begin());
}

}  // namespace coda
