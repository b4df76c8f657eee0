// Buffers for tests of a single op: owns host memory, makes views of it, poisons, fills and reads it as doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/f8.h"
#include "kernels/core/memory.h"
#include "kernels/core/operand.h"

namespace coda::test {

/// One buffer per view, of exactly its size, so AddressSanitizer sees the first element read or written outside. New
/// buffers are poisoned: NaN in floating-point elements, 0x7f7f7f7f in i32.
class Buffers {
  public:
    /// A matrix in a buffer of its own; ld 0 means contiguous rows.
    View matrix(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t ld = 0) {
        View view{static_cast<BufferId>(storage_.size()), dtype, 0, rows, cols, ld == 0 ? cols : ld, 0};
        const std::int64_t elements = (rows - 1) * view.ld + cols;
        sizes_.push_back(static_cast<std::size_t>(elements * size_of(dtype)));
        storage_.push_back(std::make_unique<std::byte[]>(sizes_.back()));
        poison(view);
        return view;
    }
    View vector(DType dtype, std::int64_t count) { return matrix(dtype, 1, count); }
    View scalar(DType dtype, double value) {
        const View view = matrix(dtype, 1, 1);
        set(view, 0, 0, value);
        return view;
    }
    View indices(const std::vector<int>& values) {
        const View view = vector(DType::i32, static_cast<std::int64_t>(values.size()));
        for (std::size_t i = 0; i < values.size(); ++i) set(view, 0, static_cast<std::int64_t>(i), values[i]);
        return view;
    }
    /// A matrix of uniform values in [low, high), rounded to the dtype.
    View random(DType dtype, std::int64_t rows, std::int64_t cols, double low = -1, double high = 1,
                std::int64_t ld = 0) {
        const View view = matrix(dtype, rows, cols, ld);
        std::uniform_real_distribution<double> uniform(low, high);
        fill(view, [&] { return uniform(generator_); });
        return view;
    }
    /// A matrix of integers in [-bound, bound], exact in every floating-point dtype up to bound 256.
    View integers(DType dtype, std::int64_t rows, std::int64_t cols, int bound, std::int64_t ld = 0) {
        const View view = matrix(dtype, rows, cols, ld);
        std::uniform_int_distribution<int> uniform(-bound, bound);
        fill(view, [&] { return uniform(generator_); });
        return view;
    }

    /// Fills the whole buffer, gaps between rows included.
    void poison(const View& view) {
        const auto id = static_cast<std::size_t>(view.buffer);
        const int byte = view.dtype == DType::i32 ? 0x7f : 0xff;  // a word of ones is a NaN in every float type
        std::memset(storage_[id].get(), byte, sizes_[id]);
    }

    double get(const View& view, std::int64_t row, std::int64_t col) const {
        const std::byte* at = address(view, row, col);
        switch (view.dtype) {
            case DType::f64: return read<double>(at);
            case DType::f32: return read<float>(at);
            case DType::bf16: return static_cast<float>(read<Bf16>(at));
            case DType::i32: return read<std::int32_t>(at);
            case DType::u8: return read<std::uint8_t>(at);
            case DType::f8e4m3: return static_cast<float>(read<F8E4M3>(at));
            case DType::f8e5m2: return static_cast<float>(read<F8E5M2>(at));
        }
        return 0;
    }
    void set(const View& view, std::int64_t row, std::int64_t col, double value) {
        std::byte* at = address(view, row, col);
        switch (view.dtype) {
            case DType::f64: return write(at, value);
            case DType::f32: return write(at, static_cast<float>(value));
            case DType::bf16: return write(at, Bf16(static_cast<float>(value)));
            case DType::i32: return write(at, static_cast<std::int32_t>(value));
            case DType::u8: return write(at, static_cast<std::uint8_t>(value));
            case DType::f8e4m3: return write(at, F8E4M3(static_cast<float>(value)));
            case DType::f8e5m2: return write(at, F8E5M2(static_cast<float>(value)));
        }
    }

    /// The view's elements row by row, without the gaps.
    std::vector<double> values(const View& view) const {
        std::vector<double> out;
        out.reserve(static_cast<std::size_t>(view.count()));
        for (std::int64_t row = 0; row < view.rows; ++row)
            for (std::int64_t col = 0; col < view.cols; ++col) out.push_back(get(view, row, col));
        return out;
    }
    /// All bytes of the view's buffer, gaps included. CHECK((bits(a) == bits(b))) compares them without printing them.
    std::string bits(const View& view) const {
        const auto id = static_cast<std::size_t>(view.buffer);
        return {reinterpret_cast<const char*>(storage_[id].get()), sizes_[id]};
    }
    /// Whether the elements between cols and ld are still poison in every row.
    bool gaps_untouched(const View& view) const {
        const int poison_byte = view.dtype == DType::i32 ? 0x7f : 0xff;
        for (std::int64_t row = 0; row + 1 < view.rows; ++row) {
            const std::byte* begin = address(view, row, view.cols);
            const std::byte* end = address(view, row + 1, 0);
            for (const std::byte* at = begin; at != end; ++at)
                if (std::to_integer<int>(*at) != poison_byte) return false;
        }
        return true;
    }

    Memory memory(Peers* peers = nullptr) const {
        std::vector<std::byte*> bases;
        for (const auto& buffer : storage_) bases.push_back(buffer.get());
        return Memory(std::move(bases), peers);
    }

  private:
    template <class T>
    static T read(const std::byte* at) {
        T value;
        std::memcpy(&value, at, sizeof value);
        return value;
    }
    template <class T>
    static void write(std::byte* at, T value) {
        std::memcpy(at, &value, sizeof value);
    }
    std::byte* address(const View& view, std::int64_t row, std::int64_t col) const {
        return storage_[static_cast<std::size_t>(view.buffer)].get() + view.offset +
               (row * view.ld + col) * size_of(view.dtype);
    }
    template <class Next>
    void fill(const View& view, Next&& next) {
        for (std::int64_t row = 0; row < view.rows; ++row)
            for (std::int64_t col = 0; col < view.cols; ++col) set(view, row, col, next());
    }

    std::vector<std::unique_ptr<std::byte[]>> storage_;
    std::vector<std::size_t> sizes_;
    std::mt19937_64 generator_{20240520};
};

/// The relative spacing of the type's numbers; half of it is the largest rounding error.
inline double epsilon(DType dtype) {
    switch (dtype) {
        case DType::f64: return std::numeric_limits<double>::epsilon();
        case DType::f32: return std::numeric_limits<float>::epsilon();
        case DType::bf16: return 1.0 / 128;
        case DType::f8e4m3: return 1.0 / 8;
        case DType::f8e5m2: return 1.0 / 4;
        default: return 0;
    }
}

/// The compute type of a storage type.
inline DType compute_of(DType storage) { return storage == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace coda::test
