#include "src/io/int4_matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "kernels/core/error.h"
#include "src/config/quantization.h"

namespace coda {

namespace {

constexpr int kPerWord = 8, kZero = 8;

constexpr std::int64_t kMostValues = std::int64_t{1} << 20;  // that a reader holds

std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string out;
    for (const std::int64_t extent : shape) out += text(out.empty() ? "(" : ", ", extent);
    return out + ")";
}

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
        require(part != nullptr, "a quantized matrix lacks its tensor ", stem_, end);
        require(dtype.empty() || part->dtype == dtype, part->file, ": ", part->name, " has dtype ", part->dtype,
                ", where ", dtype, " is expected");
        require(part->shape == shape, part->file, ": ", part->name, " has the shape ", shape_text(part->shape),
                ", where ", shape_text(shape), " is expected");
        names.push_back(part->name);
        return *part;
    }
    void must_not_have(const char* end, const char* why) const {
        const StoredTensor* part = find(end);
        require(part == nullptr, part == nullptr ? "" : part->file, ": ", stem_, end, ": ", why,
                "; take the model's folder in bf16, fp16 or fp32");
    }

    std::vector<std::string> names;

  private:
    const SafetensorsFolder& folder_;
    std::string stem_;
};

template <class T>
std::vector<T> elements_of(const StoredTensor& tensor, std::int64_t first, std::int64_t count) {
    std::vector<T> elements(static_cast<std::size_t>(count));
    (*tensor.source)(tensor.begin + first * static_cast<std::int64_t>(sizeof(T)),
                     std::as_writable_bytes(std::span(elements)));
    return elements;
}
template <class T>
std::vector<T> elements_of(const StoredTensor& tensor) {
    return elements_of<T>(tensor, 0, tensor.count);
}

/// All zeros are 8, less one in version 1.
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

float value_of(std::uint32_t word, std::int64_t column, float scale) {
    const auto code = static_cast<int>(word >> (4 * (column % kPerWord)) & 15u);
    return static_cast<float>(code - kZero) * scale;
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
    matrix.transposed_ = parts.find("weight_packed") == nullptr;
    if (matrix.transposed_ && parts.find("qweight") == nullptr) return std::nullopt;
    require(cols % kInt4Group == 0, weight, ": a quantized matrix of ", cols, " columns, not a multiple of ",
            kInt4Group);
    if (matrix.transposed_) {
        matrix.words_ = &parts.get("qweight", {cols / kPerWord, rows}, "I32");
        matrix.scales_ = &parts.get("scales", {cols / kInt4Group, rows}, {});
        check_zeros(parts.get("qzeros", {cols / kInt4Group, rows / kPerWord}, "I32"));
        if (parts.find("g_idx") != nullptr) check_order(parts.get("g_idx", {cols}, "I32"));
        parts.must_not_have("bias", "it has a bias");
    } else {
        parts.must_not_have("weight_zero_point", "it has zero points");
        parts.must_not_have("weight_g_idx", "it reorders columns");
        matrix.words_ = &parts.get("weight_packed", {rows, cols / kPerWord}, "I32");
        matrix.scales_ = &parts.get("weight_scale", {rows, cols / kInt4Group}, {});
        const std::vector<std::int64_t> shape = elements_of<std::int64_t>(parts.get("weight_shape", {2}, "I64"));
        require(shape == std::vector{rows, cols}, weight, "_shape is ", shape_text(shape), ", where ",
                shape_text({rows, cols}), " is expected");
    }
    matrix.parts_ = std::move(parts.names);
    return matrix;
}

void Int4Matrix::read_rows(std::int64_t first, std::span<float> out) const {
    const std::int64_t count = static_cast<std::int64_t>(out.size()) / cols_, words = cols_ / kPerWord,
                       groups = cols_ / kInt4Group;
    std::vector<float> scales(static_cast<std::size_t>(count * groups));
    std::vector<std::uint32_t> stored;
    if (!transposed_) {
        stored = elements_of<std::uint32_t>(*words_, first * words, count * words);
        scales_->read(first * groups, std::span(scales));
    }
    for (std::int64_t group = 0; transposed_ && group < groups; ++group)
        scales_->read(group * rows_ + first, std::span(scales).subspan(static_cast<std::size_t>(group * count),
                                                                       static_cast<std::size_t>(count)));
    for (std::int64_t word = 0; word < words; ++word) {
        if (transposed_) stored = elements_of<std::uint32_t>(*words_, word * rows_ + first, count);
        const std::int64_t group = word * kPerWord / kInt4Group;
        for (std::int64_t row = 0; row < count; ++row) {
            const std::uint32_t codes = stored[static_cast<std::size_t>(transposed_ ? row : row * words + word)];
            const float scale =
                scales[static_cast<std::size_t>(transposed_ ? group * count + row : row * groups + group)];
            for (std::int64_t j = 0; j < kPerWord; ++j)
                out[static_cast<std::size_t>(row * cols_ + word * kPerWord + j)] = value_of(codes, j, scale);
        }
    }
}

namespace {

constexpr int kLeast = -8, kMost = 7;

double code_of(float value, float scale) {
    return std::clamp(std::nearbyint(static_cast<double>(value) / static_cast<double>(scale)), double{kLeast},
                      double{kMost});
}

Bf16 best_scale(std::span<const float> group) {
    constexpr int kScales = 20;
    constexpr double kStep = 0.02, kWidest = (kMost - kLeast) / 2.0;
    double largest = 0;
    for (const float value : group) largest = std::max(largest, std::abs(static_cast<double>(value)));
    Bf16 best(1.0f);
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kScales; ++i) {
        const Bf16 scale(static_cast<float>((1 - kStep * i) * largest / kWidest));
        if (!(scale > 0)) break;  // a group of zeros, or of numbers too small for a scale
        double error = 0;
        for (const float value : group) {
            const double off = code_of(value, scale) * static_cast<double>(scale) - static_cast<double>(value);
            error += off * off;
        }
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    return best;
}

}  // namespace

void quantize_row(std::span<const float> row, std::span<std::uint32_t> words, std::span<Bf16> scales) {
    std::fill(words.begin(), words.end(), 0u);
    for (std::size_t g = 0; g < scales.size(); ++g) {
        scales[g] = best_scale(row.subspan(g * kInt4Group, kInt4Group));
        for (std::size_t i = g * kInt4Group; i < (g + 1) * kInt4Group; ++i) {
            const auto code = static_cast<std::uint32_t>(static_cast<int>(code_of(row[i], scales[g])) + kZero);
            words[i / kPerWord] |= code << (4 * (i % kPerWord));
        }
    }
}

void Int4Reader::read(const Int4Matrix& matrix, std::int64_t rows, std::int64_t cols, std::int64_t row,
                      std::int64_t column, std::span<float> out) {
    const std::int64_t held = static_cast<std::int64_t>(values_.size()) / cols;
    if (matrix_ != &matrix || row < first_ || row >= first_ + held) {
        const std::int64_t count = std::min(std::max(kMostValues / cols, std::int64_t{1}), rows - row);
        values_.resize(static_cast<std::size_t>(count * cols));
        matrix_ = nullptr;  // until the values are there
        matrix.read_rows(row, values_);
        matrix_ = &matrix;
        first_ = row;
    }
    const auto from = values_.begin() + static_cast<std::ptrdiff_t>((row - first_) * cols + column);
    std::copy(from, from + static_cast<std::ptrdiff_t>(out.size()), out.begin());
}

}  // namespace coda
