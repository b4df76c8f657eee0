// How --export stores weights.
#pragma once

#include <cstdint>

namespace coda {

/// float32: the masters' bits. bfloat16: rounded to nearest even. int4: the layers' matrices as 4-bit integers
/// (src/io/int4_matrix.h), the rest in bf16.
enum class ExportDtype : std::uint8_t { bfloat16, float32, int4 };

}  // namespace coda
