#include "src/io/int4_matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "kernels/core/error.h"
#include "src/config/quantization.h"

namespace coda {

namespace {

constexpr std::int64_t kMostValues = std::int64_t{1} << 20;  // that a reader holds

/// The parts of one matrix, by the ends of their names.
class Parts {
  public:
    Parts(const SafetensorsFolder& folder, std::string stem) : folder_(folder), stem_(std::move(stem)) {}

    const StoredTensor* find(const char* end) const {
        const auto found = folder_.tensors().find(stem_ + end);
        return found == folder_.tensors().end() ? nullptr : &found->second;
    }
    /// Adds the part to the matrix's.
    const StoredTensor& get(const char* end, const std::vector<std::int64_t>& shape, std::string_view dtype) {
        const StoredTensor* part = find(end);
        require(part != nullptr, file, ": a quantized matrix lacks its tensor ", stem_, end);
        require(dtype.empty() || part->dtype == dtype, part->file, ": ", part->name, " has dtype ", part->dtype,
                ", where ", dtype, " is expected");
        require(part->shape == shape, part->file, ": ", part->name, " has the shape ", shape_text(part->shape),
                ", where ", shape_text(shape), " is expected");
        names.push_back(part->name);
        return *part;
    }
    void must_not_have(const char* end, const char* why) const {
        const StoredTensor* part = find(end);
        if (part != nullptr) throw Error(text(part->file, ": ", part->name, ": ", why, kTakeFloats));
    }

    std::vector<std::string> names;
    std::string file;  // of the words, for messages

  private:
    const SafetensorsFolder& folder_;
    std::string stem_;
};

template <class T>
void read_elements(const StoredTensor& tensor, std::int64_t first, std::span<T> out) {
    (*tensor.source)(tensor.begin + first * static_cast<std::int64_t>(sizeof(T)), std::as_writable_bytes(out));
}
template <class T>
std::vector<T> elements_of(const StoredTensor& tensor) {
    std::vector<T> elements(static_cast<std::size_t>(tensor.count));
    read_elements(tensor, 0, std::span(elements));
    return elements;
}

/// The zero point of a symmetric matrix is 8. Version 1 of GPTQ's layout stores one less.
void check_zeros(const StoredTensor& tensor) {
    const std::vector<std::uint32_t> words = elements_of<std::uint32_t>(tensor);
    const bool first = std::all_of(words.begin(), words.end(), [](std::uint32_t word) { return word == 0x77777777u; });
    const bool second = std::all_of(words.begin(), words.end(), [](std::uint32_t word) { return word == 0x88888888u; });
    require(first || second, tensor.file, ": ", tensor.name,
            " has zero points other than 8; this program reads symmetric weights");
}

void check_order(const StoredTensor& tensor) {
    const std::vector<std::int32_t> groups = elements_of<std::int32_t>(tensor);
    for (std::size_t k = 0; k < groups.size(); ++k) {
        require(groups[k] == static_cast<std::int32_t>(k / kInt4Group), tensor.file, ": ", tensor.name,
                " reorders columns (element ", k, " is ", groups[k], "), which this program does not");
    }
}

}  // namespace

std::optional<Int4Matrix> Int4Matrix::find(const SafetensorsFolder& folder, const std::string& weight,
                                           std::int64_t rows, std::int64_t cols) {
    constexpr std::string_view kEnd = "weight";
    if (!weight.ends_with(kEnd)) return std::nullopt;
    Parts parts(folder, weight.substr(0, weight.size() - kEnd.size()));
    Int4Matrix matrix;
    matrix.rows_ = rows;
    matrix.cols_ = cols;
    const StoredTensor* words = parts.find("weight_packed");
    matrix.transposed_ = words == nullptr;
    if (matrix.transposed_) words = parts.find("qweight");
    if (words == nullptr) return std::nullopt;
    parts.file = words->file;
    require(divides_into_groups(cols), weight, ": a quantized matrix of ", cols, " columns, not a multiple of ",
            kInt4Group);
    if (matrix.transposed_) {
        matrix.words_ = &parts.get("qweight", {cols / kInt4PerWord, rows}, "I32");
        matrix.scales_ = &parts.get("scales", {cols / kInt4Group, rows}, {});
        check_zeros(parts.get("qzeros", {cols / kInt4Group, rows / kInt4PerWord}, "I32"));
        if (parts.find("g_idx") != nullptr) check_order(parts.get("g_idx", {cols}, "I32"));
    } else {
        parts.must_not_have("weight_zero_point", "it has zero points");
        parts.must_not_have("weight_g_idx", "it reorders columns");
        matrix.words_ = &parts.get("weight_packed", {rows, cols / kInt4PerWord}, "I32");
        matrix.scales_ = &parts.get("weight_scale", {rows, cols / kInt4Group}, {});
        const StoredTensor& part = parts.get("weight_shape", {2}, "I64");
        const std::vector<std::int64_t> shape = elements_of<std::int64_t>(part);
        require(shape == std::vector{rows, cols}, part.file, ": ", part.name, " is ", shape_text(shape), ", where ",
                shape_text({rows, cols}), " is expected");
    }
    matrix.parts_ = std::move(parts.names);
    return matrix;
}

void Int4Matrix::read_rows(std::int64_t first, std::span<std::uint32_t> words, std::span<float> scales) const {
    const auto read = [&]<class T>(std::span<T> out, std::int64_t columns, const auto& stored) {
        const std::int64_t count = static_cast<std::int64_t>(out.size()) / columns;
        if (!transposed_) return stored(first * columns, out);
        std::vector<T> part(static_cast<std::size_t>(count));
        for (std::int64_t column = 0; column < columns; ++column) {
            stored(column * rows_ + first, std::span(part));
            for (std::int64_t row = 0; row < count; ++row)
                out[static_cast<std::size_t>(row * columns + column)] = part[static_cast<std::size_t>(row)];
        }
    };
    read(words, cols_ / kInt4PerWord,
         [&](std::int64_t element, std::span<std::uint32_t> to) { read_elements(*words_, element, to); });
    read(scales, cols_ / kInt4Group, [&](std::int64_t element, std::span<float> to) { scales_->read(element, to); });
}

namespace {

constexpr int kLeast = -8, kMost = 7;

/// The error of a group that is rounded by `scale`. The loop vectorises, as no step of it is a call or a division: a
/// number is rounded by adding and subtracting 1.5 2^52, whose last bit is 1, and clamped as an integer. The reciprocal
/// may send a quotient halfway between two integers to the other one, which has the same error.
template <bool kWeighted>
double square_error(std::span<const float> group, std::span<const float> weights, double scale) {
    constexpr double kIntegers = 0x1.8p52;
    const double reciprocal = 1 / scale;
    double error = 0;
#pragma omp simd reduction(+ : error)
    for (std::size_t k = 0; k < group.size(); ++k) {
        const auto value = static_cast<double>(group[k]);
        const int number = static_cast<int>(value * reciprocal + kIntegers - kIntegers);
        const double off = std::clamp(number, kLeast, kMost) * scale - value;
        error += kWeighted ? static_cast<double>(weights[k]) * off * off : off * off;
    }
    return error;
}

}  // namespace

int int4_of(float value, Bf16 scale) {
    const double nearest = std::nearbyint(static_cast<double>(value) / static_cast<double>(scale));
    return static_cast<int>(std::clamp(nearest, double{kLeast}, double{kMost}));
}

Bf16 int4_scale_of(std::span<const float> group, std::span<const float> weights) {
    constexpr int kScales = 36;
    constexpr double kStep = 0.02;
    double largest = 0;
    for (const float value : group) largest = std::max(largest, std::abs(static_cast<double>(value)));
    Bf16 best(1.0f);
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kScales; ++i) {
        const Bf16 scale(static_cast<float>((1 - kStep * i) * largest / kMost));
        if (!(scale > 0)) break;  // a group of zeros, or of numbers too small for a scale
        const double error = weights.empty() ? square_error<false>(group, weights, static_cast<double>(scale))
                                             : square_error<true>(group, weights, static_cast<double>(scale));
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    return best;
}

void quantize_row(std::span<const float> row, std::span<std::uint32_t> words, std::span<Bf16> scales) {
    std::fill(words.begin(), words.end(), 0u);
    for (std::size_t g = 0; g < scales.size(); ++g) {
        scales[g] = int4_scale_of(row.subspan(g * kInt4Group, kInt4Group));
        for (std::size_t i = g * kInt4Group; i < (g + 1) * kInt4Group; ++i) {
            const auto code = static_cast<std::uint32_t>(int4_of(row[i], scales[g]) + kInt4Zero);
            words[i / kInt4PerWord] |= code << (4 * (i % kInt4PerWord));
        }
    }
}

Int4Reader::Row Int4Reader::row_of(const Int4Matrix& matrix, std::int64_t row) {
    const auto words = static_cast<std::size_t>(matrix.cols() / kInt4PerWord);
    const auto scales = static_cast<std::size_t>(matrix.cols() / kInt4Group);
    const auto held = static_cast<std::int64_t>(words_.size() / words);
    if (matrix_ != &matrix || row < first_ || row >= first_ + held) {
        const std::int64_t most = std::max(kMostValues / matrix.cols(), std::int64_t{1});
        const auto count = static_cast<std::size_t>(std::min(most, matrix.rows() - row));
        words_.resize(count * words);
        scales_.resize(count * scales);
        matrix_ = nullptr;  // until they are there
        matrix.read_rows(row, words_, scales_);
        matrix_ = &matrix;
        first_ = row;
    }
    const auto at = static_cast<std::size_t>(row - first_);
    return {std::span(words_).subspan(at * words, words), std::span(scales_).subspan(at * scales, scales)};
}

void Int4Reader::read(const Int4Matrix& matrix, std::int64_t row, std::int64_t column, std::span<float> out) {
    const Row stored = row_of(matrix, row);
    unpack_int4(stored.words, stored.scales, column, out);
}

void Int4Reader::read(const Int4Matrix& matrix, std::int64_t row, std::span<std::uint32_t> words,
                      std::span<Bf16> scales) {
    const Row stored = row_of(matrix, row);
    std::copy(stored.words.begin(), stored.words.end(), words.begin());
    std::transform(stored.scales.begin(), stored.scales.end(), scales.begin(), [](float scale) { return Bf16(scale); });
}

}  // namespace coda
