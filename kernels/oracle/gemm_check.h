// One GEMM op being checked: its product in bands of rows, and the differences found so far. Host.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/oracle/cublaslt.h"
#include "kernels/oracle/oracle.h"

namespace coda::oracle {

/// Sums over the compared elements of one operand.
struct ErrorSums {
    double difference = 0, expected = 0;  // of squares
    double largest_difference = 0, largest_expected = 0;
};

/// Device memory that a check works in: one band of an fp32 product, and the partial sums of a comparison.
struct CheckBuffers {
    float* product = nullptr;
    std::int64_t product_bytes = 0;
    void* sums = nullptr;  // kSumsBytes
    static constexpr std::int64_t kSumsBytes = std::int64_t{1} << 16;
};

class GemmCheck {
  public:
    GemmCheck(CublasLt& cublas, const CheckBuffers& buffers, const Memory& memory, const Capture& before,
              hopper::Stream stream)
        : cublas_(cublas), buffers_(buffers), memory_(memory), before_(before), stream_(stream) {}

    hopper::Stream stream() const { return stream_; }
    void* sums() const { return buffers_.sums; }
    const Memory& memory() const { return memory_; }

    /// The copy of an operand from before the launch; nullptr where none was taken.
    const std::byte* captured(const char* operand) const;

    /// Calls band(product, first, rows): rows [first, first + rows) of a (m, k) times the operand b, fp32, n apart.
    /// `first` is a multiple of `unit`. For WeightGradient a row of the product is a column of `a`.
    void by_rows(const View& a, hopper::Major major_a, const View& b, hopper::Major major_b, std::int64_t unit,
                 const std::function<void(const float*, std::int64_t, std::int64_t)>& band);

    void add(const char* operand, const ErrorSums& sums);
    std::vector<OperandError> results() const;

  private:
    CublasLt& cublas_;
    const CheckBuffers& buffers_;
    const Memory& memory_;
    const Capture& before_;
    hopper::Stream stream_;
    std::vector<std::pair<std::string, ErrorSums>> sums_;
};

void check_gemm(const Linear& op, GemmCheck& check);
void check_gemm(const LinearRope& op, GemmCheck& check);
void check_gemm(const LinearSwiglu& op, GemmCheck& check);
void check_gemm(const LinearCrossEntropy& op, GemmCheck& check);
void check_gemm(const LinearResidualRms& op, GemmCheck& check);
void check_gemm(const LinearRstd& op, GemmCheck& check);
void check_gemm(const LinearRstdSwiglu& op, GemmCheck& check);
void check_gemm(const LinearRstdRope& op, GemmCheck& check);
void check_gemm(const LinearRstdCrossEntropy& op, GemmCheck& check);
void check_gemm(const LinearRmsBackward& op, GemmCheck& check);
void check_gemm(const LinearSwigluBackward& op, GemmCheck& check);
void check_gemm(const LinearHeadDot& op, GemmCheck& check);
void check_gemm(const WeightGradient& op, GemmCheck& check);

}  // namespace coda::oracle
