// Element types of buffers, and bf16 as host code sees it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define CODA_HD __host__ __device__ __forceinline__
#else
#define CODA_HD inline
#endif

namespace coda {

enum class DType : std::uint8_t {
    f64,
    f32,
    bf16,
    i32,
    u8,
    f8e4m3,  // 1 sign, 4 exponent and 3 mantissa bits, up to 448; no infinity
    f8e5m2,  // 1 sign, 5 exponent and 2 mantissa bits, up to 57344
};

/// Bytes of one element.
constexpr std::int64_t size_of(DType dtype) {
    switch (dtype) {
        case DType::f64: return 8;
        case DType::f32: return 4;
        case DType::i32: return 4;
        case DType::bf16: return 2;
        case DType::u8: return 1;
        case DType::f8e4m3: return 1;
        case DType::f8e5m2: return 1;
    }
    return 0;
}

constexpr const char* name_of(DType dtype) {
    switch (dtype) {
        case DType::f64: return "f64";
        case DType::f32: return "f32";
        case DType::i32: return "i32";
        case DType::bf16: return "bf16";
        case DType::u8: return "u8";
        case DType::f8e4m3: return "f8e4m3";
        case DType::f8e5m2: return "f8e5m2";
    }
    return "?";
}

/// Whether the elements are FP8 (f8.h): operands of GEMMs, with a scale of their own.
constexpr bool is_f8(DType dtype) { return dtype == DType::f8e4m3 || dtype == DType::f8e5m2; }

/// Storage-only bfloat16: the upper half of an IEEE float. Rounds to nearest, ties to even; NaN stays NaN.
struct Bf16 {
    std::uint16_t bits = 0;

    Bf16() = default;
    explicit Bf16(float value) {
        const auto word = std::bit_cast<std::uint32_t>(value);
        // Masks instead of a branch, so that compilers vectorise loops that round.
        const std::uint32_t nan = 0u - static_cast<std::uint32_t>((word & 0x7fffffffu) > 0x7f800000u);
        const std::uint32_t round = ~nan & (0x7fffu + ((word >> 16) & 1u));
        bits = static_cast<std::uint16_t>(((word + round) | (nan & 0x400000u)) >> 16);
    }
    operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};
static_assert(sizeof(Bf16) == 2);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
    static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
    static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<Bf16> {
    static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<std::int32_t> {
    static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::uint8_t> {
    static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

/// The dtypes of the four roles that a floating-point buffer can have. Chosen once, when the schedule is built.
///   GPU        {bf16, f32, f32, f32}
///   CPU        {f32,  f32, f32, f32} (default), {bf16, f32, f32, f32} (the GPU's rounding points)
///   oracle     {f64,  f64, f64, f64}
/// statistic, gradient and master are always the compute type: f64 where storage is f64, else f32.
struct Precision {
    DType storage = DType::f32;    // weights as GEMM operands, activations
    DType statistic = DType::f32;  // rstd, lse, partials, scalars, RoPE table
    DType gradient = DType::f32;   // parameter gradients
    DType master = DType::f32;     // parameters as the optimizer sees them

    bool operator==(const Precision&) const = default;
};

inline constexpr Precision kFloat64{DType::f64, DType::f64, DType::f64, DType::f64};
inline constexpr Precision kFloat32{DType::f32, DType::f32, DType::f32, DType::f32};
inline constexpr Precision kMixedBf16{DType::bf16, DType::f32, DType::f32, DType::f32};

}  // namespace coda
